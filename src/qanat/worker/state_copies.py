"""Copies of recurrent and conv states: a checkpoint of a running state, or a running state from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.core.batch import StateCopy
from qanat.worker.cache_tensors import CacheTensors


def copy_states(cache: CacheTensors, copies: Sequence[StateCopy]) -> None:
    """Makes copies in all layers, one after the other: a later one may read what an earlier one has written."""
    if not copies:
        return
    tensors = [*cache.conv_states, *cache.recurrent_states]
    for copy in copies:
        for tensor in tensors:
            tensor[copy.target].copy_(tensor[copy.source])
