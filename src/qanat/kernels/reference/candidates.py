"""Which tokens survive min_p, top_k and top_p.

Tokens are ordered by (value descending, id ascending), so each filter keeps a prefix of that order and all three
together keep the shortest one. The definition, for scaled logits x = logit / T in fp32 and their maximum m:

    min_p   keeps tokens with x - m >= fp32(log(min_p)); the difference in fp32
    top_k   keeps the first k
    top_p   keeps the smallest prefix of what the other two left whose weights reach top_p times their sum Z,
            and always one token. A weight is exp(fp64(x - m)); sums are fp64, one addition after the other: along
            the order, except that Z runs in order of id for a request without top_k.

Nothing here depends on which other rows are in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_FIRST_GUESS = 256
_GUESS_FACTOR = 8


@dataclass(frozen=True)
class Filter:
    """Filters of one row.

    Attributes:
        top_k: tokens kept; 0 keeps all.
        top_p: probability kept; 1 keeps all.
        log_min_p: logarithm of the smallest probability kept, relative to the largest; -inf keeps all.
    """

    top_k: int
    top_p: float
    log_min_p: float

    @property
    def is_open(self) -> bool:
        """True if every token passes."""
        return self.top_k == 0 and self.top_p == 1.0 and self.log_min_p == -math.inf


@dataclass(frozen=True)
class Candidates:
    """Surviving tokens of R rows, best first, padded to the same number.

    Attributes:
        token_ids: [R, n] int64.
        values: [R, n] fp32 scaled logits, -inf for padding.
    """

    token_ids: Tensor
    values: Tensor


def order_best(values: Tensor, num_best: int) -> tuple[Tensor, Tensor]:
    """The first entries of each row by (value descending, id ascending).

    Args:
        values: [R, V] fp32.
        num_best: n, from 1 to V.

    Returns:
        values [R, n] and ids [R, n] int64; an id beside a value of -inf means nothing.
    """
    # `topk` leaves open which of several equal values it takes and in which order: one more entry than asked for
    # tells whether there are any.
    best_values, best_ids = values.topk(min(num_best + 1, values.shape[1]), dim=1)
    below = best_values[:, 1:]
    if bool((below < best_values[:, :-1]).logical_or_(below == -math.inf).all()):
        return best_values[:, :num_best], best_ids[:, :num_best]
    return _order_with_ties(values, best_values[:, num_best - 1 : num_best], num_best)


def _order_with_ties(values: Tensor, threshold: Tensor, num_best: int) -> tuple[Tensor, Tensor]:
    """`order_best` where values are equal: everything from the smallest value kept on, stably sorted."""
    is_kept = (values >= threshold).logical_and_(values > -math.inf)
    rows, ids = is_kept.nonzero(as_tuple=True)
    num_kept = is_kept.sum(dim=1)
    place = torch.arange(len(rows), device=values.device) - (num_kept.cumsum(0) - num_kept)[rows]
    width = max(num_best, int(num_kept.max()))
    best_values = values.new_full((len(values), width), -math.inf)
    best_ids = torch.zeros((len(values), width), dtype=torch.int64, device=values.device)
    best_values[rows, place] = values[rows, ids]
    best_ids[rows, place] = ids
    # Ids ascend within a row here, so a stable sort by value leaves equal values in order of id.
    best_values, order = best_values.sort(dim=1, descending=True, stable=True)
    return best_values[:, :num_best], best_ids.gather(1, order)[:, :num_best]


def select_candidates(values: Tensor, filters: Sequence[Filter]) -> Candidates:
    """Applies each row's filters.

    Args:
        values: [R, V] fp32 scaled logits; -inf where a token is masked; each row has one token that is not.
        filters: R of them, none open.
    """
    vocab_size = values.shape[1]
    limits = _Limits(values, filters)
    # Without top_k it is open how many tokens are needed: look at some, and at more where that was not enough.
    num_best = max(min(f.top_k or _FIRST_GUESS, vocab_size) for f in filters)
    while True:
        best_values, best_ids = order_best(values, num_best)
        lengths, is_enough = limits.prefix_lengths(best_values)
        if is_enough or num_best == vocab_size:
            break
        num_best = min(vocab_size, num_best * _GUESS_FACTOR)
    width = int(lengths.max())
    is_padding = torch.arange(width, device=values.device) >= lengths[:, None]
    return Candidates(best_ids[:, :width], best_values[:, :width].masked_fill(is_padding, -math.inf))


class _Limits:
    """The filters of R rows as tensors."""

    def __init__(self, values: Tensor, filters: Sequence[Filter]) -> None:
        device, vocab_size = values.device, values.shape[1]
        self._top_k = torch.tensor([[f.top_k or vocab_size] for f in filters], device=device)
        log_min_p = [[f.log_min_p] for f in filters]
        self._log_min_p = torch.tensor(log_min_p, dtype=torch.float32, device=device)
        self._has_top_p = any(f.top_p < 1.0 for f in filters)
        top_p = [f.top_p if f.top_p < 1.0 else math.inf for f in filters]
        self._top_p = torch.tensor(top_p, dtype=torch.float64, device=device)
        without_top_k = [r for r, f in enumerate(filters) if f.top_p < 1.0 and f.top_k == 0]
        self._total = torch.full((len(filters),), math.nan, dtype=torch.float64, device=device)
        if without_top_k:
            self._total[without_top_k] = self._sum_of_weights(values[without_top_k], without_top_k)

    def _sum_of_weights(self, values: Tensor, rows: Sequence[int]) -> Tensor:
        """[r] Z over all tokens that min_p leaves, in order of id."""
        relative = values - values.amax(dim=1, keepdim=True)
        is_likely = relative >= self._log_min_p[rows]
        return relative.to(torch.float64).exp_().mul_(is_likely).cumsum(dim=1)[:, -1]

    def prefix_lengths(self, best_values: Tensor) -> tuple[Tensor, bool]:
        """Tokens kept per row [R], and whether `best_values` [R, n] goes far enough to tell."""
        num_best = best_values.shape[1]
        relative = best_values - best_values[:, :1]
        is_kept = (relative >= self._log_min_p).logical_and_(best_values > -math.inf)
        is_kept.logical_and_(torch.arange(num_best, device=best_values.device) < self._top_k)
        if self._has_top_p:
            weights = relative.to(torch.float64).exp_().mul_(is_kept)
            reached = weights.cumsum(dim=1)
            total = torch.where(self._total.isnan(), reached[:, -1], self._total)
            # A token is kept if the ones before it have not reached the target: the first always is.
            is_kept.logical_and_(reached - weights < (self._top_p * total)[:, None])
        is_kept[:, 0] = True
        is_enough = is_kept[:, -1].logical_not().logical_or_(self._top_k[:, 0] <= num_best)
        return is_kept.sum(dim=1), bool(is_enough.all())
