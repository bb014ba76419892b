"""Chooses one token per row: argmax(filtered logits / T + noise) (design rules R6 and R11)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qanat.kernels import ops
from qanat.kernels.draws import Draws, as_bytes
from qanat.kernels.reference.choice import NO_TOKEN as NO_TOKEN  # the runner asks for it
from qanat.kernels.reference.gumbel import position_key
from qanat.worker.row_state import RowState
from qanat.worker.workspace import MAX_SAMPLER_ELEMENTS


def sample_tokens(
    logits: Tensor,
    rows: Sequence[RowState],
    num_valid: int | None = None,
    chosen: Sequence[int] | None = None,
) -> list[int]:
    """One token per row. The result of a row depends on that row alone.

    Args:
        logits: [R, V] fp32; not changed. Padding may stand behind the rows.
        rows: R requests; the token is for position `num_tokens`.
        num_valid: ids from here on are not chosen; all may be if it is None.
        chosen: R tokens drawn from the logits as they are, if that was done already; and those of the padding.

    Returns:
        R token ids, `NO_TOKEN` where every token is masked.
    """
    if chosen is None:
        tokens, open_rows = [NO_TOKEN] * len(rows), list(range(len(rows)))
    else:
        tokens = list(chosen[: len(rows)])
        open_rows = [i for i, row in enumerate(rows) if row.has_edits]
    if open_rows:
        _draw(logits, rows, num_valid or logits.shape[1], open_rows, tokens)
    return tokens


def draws_of(places: Sequence[tuple[RowState, int]]) -> Draws:
    """[n] how tokens are chosen: of which row, and for which position."""
    draws = np.concatenate([row.draw for row, _ in places])
    draws["key"] = [position_key(int(row.draw["key"][0]), position) for row, position in places]
    return draws


@torch.inference_mode()
def _draw(
    logits: Tensor, rows: Sequence[RowState], num_valid: int, open_rows: Sequence[int], tokens: list[int]
) -> None:
    """Fills in the tokens of `open_rows`, edited where they are to be; so many rows at a time as the plan allows."""
    num_rows = max(1, MAX_SAMPLER_ELEMENTS // num_valid)
    for start in range(0, len(open_rows), num_rows):
        part = open_rows[start : start + num_rows]
        own = logits[part, :num_valid]
        for place, i in enumerate(part):
            if rows[i].has_edits:
                rows[i].edit(own[place])
        draws = draws_of([(rows[i], rows[i].num_tokens) for i in part])
        found, _ = ops.choose_tokens(own, num_valid, torch.from_numpy(as_bytes(draws))).tolist()
        for i, token_id in zip(part, found, strict=True):
            tokens[i] = token_id
