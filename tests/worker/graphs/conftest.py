"""Graphs are made of native ops: chosen for these tests, and what was chosen before is put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qanat.kernels.native.module import is_built
from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import all_ops


@pytest.fixture(autouse=True)
def native_kernels() -> Iterator[None]:
    if not is_built():
        pytest.skip("the native kernels are not built")
    before = {op: op.chosen.name for op in all_ops()}
    choose_providers(2)
    yield
    for op, name in before.items():
        op.select(name)
