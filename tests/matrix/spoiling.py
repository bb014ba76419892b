"""Requests whose scores stop being numbers in the middle of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qanat.engine.sync_engine import SyncEngine
from qanat.worker.model_runner import ModelRunner

MAX_UNSEEN_TOKENS = 12
"""Of two steps with five drafts each: so many are scheduled before the first one's scores are known."""


def spoil(engine: SyncEngine, names: Sequence[str]) -> None:
    """Makes what is cached for the newest computed token no number, in the requests of these names that decode.

    A request that is not there, or has more to compute than one token, is left as it is, and so is one whose block may
    be full before its scores are looked at: others could find that, and be wrong with good reason.
    """
    executor = engine._core._executor
    runner = executor._worker._runner  # type: ignore[attr-defined]
    executor._steps.call(lambda: _spoil(runner, names))  # type: ignore[attr-defined]


def _spoil(runner: ModelRunner, names: Sequence[str]) -> None:
    size = runner._limits.block_size
    for row, state in runner._table.rows():
        newest = state.num_computed_tokens - 1
        is_decoding = state.num_computed_tokens == state.num_tokens - 1
        if state.request_id in names and is_decoding and newest % size + MAX_UNSEEN_TOKENS < size:
            block = int(runner._table.block_tables[row, newest // size])
            for layer in runner._cache.kv_blocks:
                own = layer[:, block, newest % size]
                if (
                    own.dtype == torch.int8
                ):  # behind a head's values stands its scale, an fp32 NaN in all ones
                    own.fill_(-1)
                else:
                    own.fill_(torch.nan)
