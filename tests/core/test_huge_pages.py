from __future__ import annotations

import pytest

from qanat.core.huge_pages import map_huge_pages


@pytest.mark.parametrize("size_bytes", [1, 4096, 2 * 2**20 + 5])
def test_fresh_memory_is_zero_and_can_be_written_to_its_end(size_bytes: int) -> None:
    region = map_huge_pages(size_bytes)
    assert len(region) == size_bytes
    assert not any(region[:1] + region[-1:])
    region[-1] = 7
    assert region[-1] == 7
