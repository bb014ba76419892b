"""What the runs of two sides say of their difference: pairs of runs, one of each side, close together in time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.bench.online.statistics import student_error

RATES = {"output_throughput": "output throughput", "request_throughput": "request throughput"}
"""Larger is faster."""
TIMES = {
    "mean_ttft_ms": "mean TTFT",
    "median_ttft_ms": "median TTFT",
    "mean_tpot_ms": "mean TPOT",
    "mean_itl_ms": "mean ITL",
    "mean_e2el_ms": "mean E2EL",
    "median_e2el_ms": "median E2EL",
}
"""Smaller is faster."""


@dataclass(frozen=True)
class Difference:
    """How much faster B is than A by one figure.

    Attributes:
        key: of the figure in a result.
        title: of the figure.
        mean: of the pairs, as a share of A: 0.03 is 3 % faster, for times that A takes 3 % longer.
        error: half of the 95 % interval (Student's t over the logarithms of the pairs' ratios).
        num_pairs: that have the figure.
    """

    key: str
    title: str
    mean: float
    error: float
    num_pairs: int

    @property
    def is_shown(self) -> bool:
        """True if the interval leaves out that there is none."""
        return abs(self.mean) > self.error

    def text(self) -> str:
        """In words."""
        size = f"{100 * abs(self.mean):.1f} % +- {100 * self.error:.1f} %"
        if not self.is_shown:
            return f"no difference is shown: {100 * self.mean:+.1f} % +- {100 * self.error:.1f} %, n = {self.num_pairs}"
        return f"B is {size} {'faster' if self.mean > 0 else 'slower'}, n = {self.num_pairs}"


def differences(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Difference]:
    """The difference by each figure that at least two pairs have.

    Args:
        pairs: results of A and B.
    """
    found = []
    for key, title in {**RATES, **TIMES}.items():
        ratios = []
        for first, second in pairs:
            before, after = first.get(key), second.get(key)
            if before and after:
                ratios.append(math.log(after / before) * (1 if key in RATES else -1))
        if len(ratios) > 1:
            mean, error = math.fsum(ratios) / len(ratios), student_error(ratios)
            found.append(
                Difference(key, title, math.expm1(mean), math.exp(mean) * math.sinh(error), len(ratios))
            )
    return found


def headline(found: Sequence[Difference], *, has_rate: bool) -> Difference | None:
    """The figure that answers the question: throughput without a rate; latency with one, as that gives throughput."""
    wanted = ("mean_e2el_ms",) if has_rate else ("output_throughput",)
    return next((one for one in found if one.key in wanted), None)


def comparison_lines(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], found: Sequence[Difference]
) -> Iterator[str]:
    """A line for each figure, with the means of both sides."""
    yield f"{'':20}{'A':>12}{'B':>12}"
    for one in found:
        means = [
            math.fsum(side[one.key] for side in sides if side[one.key]) / one.num_pairs
            for sides in zip(*pairs, strict=True)
        ]
        yield f"{one.title:20}{means[0]:12.2f}{means[1]:12.2f}  {one.text()}"
