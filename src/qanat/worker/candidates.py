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
        min_p: smallest probability kept, relative to the largest; 0 keeps all.
    """

    top_k: int
    top_p: float
    min_p: float

    @property
    def is_open(self) -> bool:
        """True if every token passes."""
        return self.top_k == 0 and self.top_p == 1.0 and self.min_p == 0.0


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
        values [R, n] and ids [R, n] int64; where a row has fewer than n values above -inf, id 0 with -inf.
    """
    # `topk` alone leaves open which of several equal values it takes, so it only finds the smallest one kept.
    threshold = values.topk(num_best, dim=1).values[:, -1:]
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
    return _Selection(values, filters).run()


class _Selection:
    """One call's tensors: row limits in, a prefix length per row out."""

    def __init__(self, values: Tensor, filters: Sequence[Filter]) -> None:
        self._values = values
        self._filters = filters
        self._relative = values - values.amax(dim=1, keepdim=True)
        log_min_p = [math.log(f.min_p) if f.min_p > 0 else -math.inf for f in filters]
        is_likely = (
            self._relative >= torch.tensor(log_min_p, dtype=torch.float32, device=values.device)[:, None]
        )
        is_likely.logical_and_(values > -math.inf)
        top_k = torch.tensor([f.top_k or values.shape[1] for f in filters], device=values.device)
        self._bound = torch.minimum(is_likely.sum(dim=1), top_k).clamp_(min=1)
        self._top_p = torch.tensor([f.top_p for f in filters], dtype=torch.float64, device=values.device)
        self._total = torch.zeros(len(filters), dtype=torch.float64, device=values.device)
        needs_total = [r for r, f in enumerate(filters) if f.top_p < 1.0 and f.top_k == 0]
        if needs_total:
            weights = self._relative[needs_total].to(torch.float64).exp_().mul_(is_likely[needs_total])
            self._total[needs_total] = weights.cumsum(dim=1)[:, -1]

    def run(self) -> Candidates:
        """Looks at as few tokens as each row may need, and at more where that was not enough."""
        bounds = self._bound.tolist()
        # Only top_p without top_k leaves open how many tokens are needed.
        guess = max(
            min(bound, _FIRST_GUESS) if f.top_p < 1.0 and f.top_k == 0 else bound
            for bound, f in zip(bounds, self._filters, strict=True)
        )
        while True:
            best_values, best_ids = order_best(self._values, guess)
            lengths, is_enough = self._prefix_lengths(best_values)
            if is_enough:
                break
            guess = min(max(bounds), guess * _GUESS_FACTOR)
        width = int(lengths.max())
        is_padding = torch.arange(width, device=lengths.device) >= lengths[:, None]
        return Candidates(best_ids[:, :width], best_values[:, :width].masked_fill(is_padding, -math.inf))

    def _prefix_lengths(self, best_values: Tensor) -> tuple[Tensor, bool]:
        """Tokens kept per row [R], and whether `best_values` went far enough to tell."""
        num_best = best_values.shape[1]
        is_within = torch.arange(num_best, device=best_values.device) < self._bound[:, None]
        weights = (best_values - best_values[:, :1]).to(torch.float64).exp_().mul_(is_within)
        reached = weights.cumsum(dim=1)
        has_top_k = torch.tensor([f.top_k > 0 for f in self._filters], device=best_values.device)
        target = self._top_p * torch.where(has_top_k, reached[:, -1], self._total)
        # A token is kept if the ones before it have not reached the target: the first always is.
        is_needed = (reached - weights < target[:, None]).logical_and_(is_within)
        is_needed[:, 0] = True
        is_open = (self._top_p < 1.0).logical_not_()
        lengths = torch.where(is_open, self._bound.clamp(max=num_best), is_needed.sum(dim=1))
        is_short = (reached[:, -1] < target).logical_and_(self._bound > num_best)
        return lengths, not bool(is_short.any())
