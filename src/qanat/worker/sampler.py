"""Chooses one token per row: argmax(filtered logits / T + noise) (design rules R6 and R11)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from qanat.core.sampling_params import SamplingParams
from qanat.kernels import ops
from qanat.worker.candidates import Filter, select_candidates
from qanat.worker.gumbel import gumbel_noise, noise_key
from qanat.worker.row_state import RowState
from qanat.worker.workspace import MAX_SAMPLER_ELEMENTS

NO_TOKEN = -1
"""Result for a row whose masks leave nothing to choose from."""


def sample_tokens(
    logits: Tensor, rows: Sequence[RowState], num_valid: int | None = None, best: Sequence[int] | None = None
) -> list[int]:
    """One token per row. The result of a row depends on that row alone.

    Args:
        logits: [R, V] fp32; not changed. Padding may stand behind the rows.
        rows: R requests; the token is for position `num_tokens`.
        num_valid: ids from here on are not chosen; all may be if it is None.
        best: R tokens with the largest score, the lowest of several, if they are known; and those of the padding.

    Returns:
        R token ids, `NO_TOKEN` where every token is masked.
    """
    if best is not None and all([row.is_plain for row in rows]):
        return list(best[: len(rows)])
    with torch.inference_mode():
        return _sample(logits[: len(rows), :num_valid], rows, best)


def _sample(logits: Tensor, rows: Sequence[RowState], best: Sequence[int] | None) -> list[int]:
    logits, has_choice, edited = _edit(logits, rows)
    tokens = [NO_TOKEN] * len(rows)
    greedy = [i for i in has_choice if rows[i].is_greedy]
    for i in greedy if best is not None else ():
        tokens[i] = best[i]
    changed = [i for i in greedy if best is None or i in edited]
    if changed:
        chosen = ops.best_tokens(logits[changed], logits.shape[1])[0].tolist()
        for i, token_id in zip(changed, chosen, strict=True):
            tokens[i] = token_id
    if len(greedy) == len(has_choice):
        return tokens
    drawn = [i for i in has_choice if not rows[i].is_greedy]
    _draw(logits, rows, drawn, tokens)
    return tokens


def _edit(logits: Tensor, rows: Sequence[RowState]) -> tuple[Tensor, list[int], Collection[int]]:
    """The logits with each row's edits, in a copy if there are any; rows with a token left; rows that were edited."""
    edited = [i for i, row in enumerate(rows) if row.has_edits]
    if not edited:
        return logits, list(range(len(rows))), ()
    logits = logits.clone()
    for i in edited:
        rows[i].edit(logits[i])
    is_dead = (logits[edited].amax(dim=1) == -math.inf).tolist()
    dead = {i for i, is_row_dead in zip(edited, is_dead, strict=True) if is_row_dead}
    return logits, [i for i in range(len(rows)) if i not in dead], set(edited)


def _draw(logits: Tensor, rows: Sequence[RowState], drawn: Sequence[int], tokens: list[int]) -> None:
    """Fills in the tokens of the rows `drawn`, which have a temperature."""
    filters = {i: _filter(rows[i].sampling, logits.shape[1]) for i in drawn}
    num_rows = max(1, MAX_SAMPLER_ELEMENTS // logits.shape[1])
    for is_open in (True, False):
        group = [i for i in drawn if filters[i].is_open == is_open]
        for start in range(0, len(group), num_rows):
            part = group[start : start + num_rows]
            keys = [noise_key(rows[i].seed, rows[i].choice_index, rows[i].num_tokens) for i in part]
            temperature = torch.tensor([rows[i].sampling.temperature for i in part], dtype=torch.float32)
            values = logits[part].div_(temperature.to(logits.device)[:, None])
            if is_open:
                ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
                chosen = values.add_(gumbel_noise(keys, ids)).argmax(dim=1)
            else:
                chosen = _draw_filtered(values, [filters[i] for i in part], keys)
            for i, token_id in zip(part, chosen.tolist(), strict=True):
                tokens[i] = token_id


def _draw_filtered(values: Tensor, filters: Sequence[Filter], keys: Sequence[int]) -> Tensor:
    """[R] tokens: noise is only made for what the filters leave."""
    candidates = select_candidates(values, filters)
    scores = candidates.values + gumbel_noise(keys, candidates.token_ids)
    is_best = scores == scores.amax(dim=1, keepdim=True)
    # Candidates are ordered by value, so equal scores need not be in order of id.
    return candidates.token_ids.masked_fill(is_best.logical_not_(), values.shape[1]).amin(dim=1)


def _filter(sampling: SamplingParams, vocab_size: int) -> Filter:
    top_k = sampling.top_k if 0 < sampling.top_k < vocab_size else 0
    return Filter(top_k, sampling.top_p, sampling.min_p)
