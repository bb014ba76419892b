"""How far two servers' next-token probabilities are apart, from the few likeliest tokens that each names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qanat.evals.extraction import THINK_START
from qanat.evals.record import Result


@dataclass(frozen=True)
class Divergence:
    """Mean over places.

    Attributes:
        mean_nats: of the Kullback-Leibler divergence from the baseline, at least.
        max_nats: the largest.
        num_places: that could be compared.
        num_same_first: places at which both had the same likeliest token.
    """

    mean_nats: float
    max_nats: float
    num_places: int
    num_same_first: int


def divergence(pairs: Iterable[tuple[Result, Result]]) -> Divergence | None:
    """Of pairs (baseline, other); None where nothing can be compared.

    The first token of an answer always can, as both had read the same before it. Further ones can as long as both
    wrote the same. Some servers leave thinking out of the log-probabilities: their tokens can be compared where both
    thought the same.
    """
    found, num_same = [], 0
    for before, after in pairs:
        if before.prompt != after.prompt or (
            before.thinking != after.thinking and not _is_told(before, after)
        ):
            continue
        for place, (left, right) in enumerate(zip(before.chances, after.chances, strict=False)):
            if before.tokens[:place] != after.tokens[:place]:
                break
            if left and right:
                found.append(kl_nats(left, right))
                num_same += max(left, key=left.__getitem__) == max(right, key=right.__getitem__)
    if not found:
        return None
    return Divergence(sum(found) / len(found), max(found), len(found), num_same)


def _is_told(*results: Result) -> bool:
    """Whether the tokens begin with the thinking."""
    return all(
        one.thinking.startswith("".join(one.tokens).replace(THINK_START, "").strip())
        for one in results
        if one.thinking
    )


def kl_nats(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Kullback-Leibler divergence of `after` from `before`, each the log-probabilities of a few likeliest tokens.

    Tokens that only one side names are put together with all others, as their share is then known on both sides. What
    is put together can only lie nearer, so the true divergence is at least this.
    """
    common = before.keys() & after.keys()
    shares = [(math.exp(before[token]), math.exp(after[token])) for token in common]
    rest = [max(0.0, 1.0 - sum(share[side] for share in shares)) for side in (0, 1)]
    least = 1e-9  # what is left over of rounded probabilities is no event that can be impossible
    shares.append((max(rest[0], least), max(rest[1], least)))
    return max(0.0, sum(p * math.log(p / max(q, least)) for p, q in shares if p > 0))
