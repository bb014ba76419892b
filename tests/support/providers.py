"""The providers that a test's ops run on. The choice holds for the whole process: an earlier test may have made one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import REFERENCE


@pytest.fixture(autouse=True)
def reference_kernels() -> Iterator[None]:
    """Starts from the references, which these tests are about, and leaves them behind."""
    choose_providers(1, REFERENCE)
    yield
    choose_providers(1, REFERENCE)
