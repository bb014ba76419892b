"""How likely one of k answers is right, told from the n that were drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from qanat.evals.intervals import interval_of_mean


def pass_at(num_samples: int, num_right: int, k: int) -> float:
    """Probability that of k answers, drawn from these without putting any back, at least one is right.

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, eq. 1), by whole numbers, so nothing overflows or is
    rounded on the way.

    Raises:
        ValueError: there are fewer than k answers.
    """
    if not 0 < k <= num_samples:
        raise ValueError(f"pass@{k} cannot be told from {num_samples} answers")
    return 1 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def pass_row(
    counts: Sequence[tuple[int, int]], ks: Sequence[int], deviations: float
) -> dict[str, Mapping[str, object]]:
    """pass@k over items.

    Args:
        counts: answers and right answers of each item.
        ks: for which k.
        deviations: of the interval, to each side.

    Returns:
        By k as text: percent and interval (percent; None where no item has k answers), items, and left_out (items
        with fewer than k answers).
    """
    row: dict[str, Mapping[str, object]] = {}
    for k in ks:
        told = [(answers, right) for answers, right in counts if answers >= k]
        shares = [pass_at(answers, right, k) for answers, right in told]
        num_tries = min((answers for answers, _ in told), default=k) / k
        low, high = interval_of_mean(shares, num_tries, deviations)
        row[str(k)] = {
            "percent": round(100 * math.fsum(shares) / len(shares), 2) if shares else None,
            "interval": [round(100 * low, 2), round(100 * high, 2)] if shares else None,
            "items": len(told),
            "left_out": len(counts) - len(told),
        }
    return row
