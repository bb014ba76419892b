"""The providers that a test's ops run on. The choice holds for the whole process: an earlier test may have made one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qanat.kernels.native import module
from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import REFERENCE


@pytest.fixture(autouse=True)
def reference_kernels() -> Iterator[None]:
    """Starts from the references, which these tests are about, and leaves them behind."""
    choose_providers(1, REFERENCE)
    yield
    choose_providers(1, REFERENCE)


@pytest.fixture(autouse=True, scope="module")
def reference_kernels_of_fixtures() -> None:
    """What a module makes once is made by the references too: it comes before the fixture of a single test."""
    choose_providers(1, REFERENCE)


@pytest.fixture(autouse=True)
def best_kernels() -> Iterator[None]:
    """The native kernels where they are built: the references take seconds for many steps."""
    choose_providers(1)
    yield
    choose_providers(1, REFERENCE)


@pytest.fixture(autouse=True)
def built_kernels() -> Iterator[None]:
    """For tests that choose kernels themselves, as `LLM` does; skips where none are built, leaves the references."""
    if not module.is_built():
        pytest.skip(module.why_not())
    yield
    choose_providers(1, REFERENCE)
