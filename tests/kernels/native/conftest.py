from __future__ import annotations

from collections.abc import Iterator

import pytest

from qanat.kernels.native import module


@pytest.fixture(autouse=True)
def _built() -> Iterator[None]:
    """Without the module there is nothing to show; afterwards the best path is chosen again."""
    if not module.is_built():
        pytest.skip(module.why_not())
    yield
    module.configure(1)
