"""Chooses one token per row: argmax(filtered scores / T + noise) (design rules R6 and R11)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.draws import DRAW, Draws
from qanat.kernels.reference.candidates import Filter, select_candidates
from qanat.kernels.reference.gumbel import gumbel_noise

NO_TOKEN = -1
"""In place of a row's token where no score that may be chosen is above -inf."""


def choose_tokens(scores: Tensor, num_valid: int, draws: Tensor | None) -> Tensor:
    """The tokens, and whether all scores of the row are finite."""
    valid = scores[:, :num_valid]
    tokens = _largest(valid)
    if draws is not None:
        records = draws.numpy().view(DRAW)[:, 0]
        is_drawn = torch.from_numpy(records["temperature"] > 0).logical_and(tokens != NO_TOKEN)
        # A score that is no number or infinitely large: such a row's token means nothing.
        is_drawn.logical_and_((valid < math.inf).all(dim=1))
        is_open = torch.tensor([_filter(record).is_open for record in records])
        for draw, chosen in ((_draw_open, is_drawn & is_open), (_draw_filtered, is_drawn & ~is_open)):
            if chosen.any():
                own = records[chosen.numpy()]
                values = valid[chosen] / torch.from_numpy(own["temperature"].copy())[:, None]
                tokens[chosen] = draw(values, own)
    return torch.stack((tokens, scores.isfinite().all(dim=1).long()))


def known_tokens(choice: Tensor) -> Tensor:
    """The tokens, 0 in place of `NO_TOKEN`."""
    return choice[0].clamp(min=0)


def _largest(scores: Tensor) -> Tensor:
    highest = scores.amax(dim=1, keepdim=True)
    ids = torch.arange(scores.shape[1], device=scores.device)
    found = ids.masked_fill((scores == highest).logical_not(), scores.shape[1] - 1).amin(dim=1)
    return found.masked_fill(highest[:, 0] == -math.inf, NO_TOKEN)


def _draw_open(values: Tensor, draws: Draws) -> Tensor:
    ids = torch.arange(values.shape[1], dtype=torch.int32, device=values.device)
    return (values + gumbel_noise(draws["key"].tolist(), ids)).argmax(dim=1)


def _draw_filtered(values: Tensor, draws: Draws) -> Tensor:
    """Noise is only made for what the filters leave."""
    candidates = select_candidates(values, [_filter(draw) for draw in draws])
    sums = candidates.values + gumbel_noise(draws["key"].tolist(), candidates.token_ids)
    is_best = sums == sums.amax(dim=1, keepdim=True)
    # Candidates are ordered by value, so equal sums need not be in order of id.
    return candidates.token_ids.masked_fill(is_best.logical_not_(), values.shape[1]).amin(dim=1)


def _filter(draw: Any) -> Filter:
    return Filter(int(draw["top_k"]), float(draw["top_p"]), float(draw["log_min_p"]))
