"""How many threads torch uses within one operation, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """So many threads within an operation until the block ends; where rows are shared out, one is right."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
