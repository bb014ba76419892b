"""The requests of a saved result, with the times that its plots are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from qanat.bench.online.measures import INTENDED, SENT

NUM_BINS = 60
NUM_QUANTILES = 200


@dataclass(frozen=True)
class Request:
    """One request; seconds from the start of the run.

    Attributes:
        intended_s: when the schedule wanted it sent.
        sent_s: when it was sent.
        first_s: its first token; None where it was not streamed, or failed.
        last_s: its last token; None if it failed.
        end_s: when it was over.
        gaps_s: between each two tokens.
        num_tokens: of the answer.
    """

    intended_s: float
    sent_s: float
    first_s: float | None
    last_s: float | None
    end_s: float
    gaps_s: Sequence[float]
    num_tokens: int

    def ttft_s(self, latency_from: str) -> float | None:
        """Time to the first token, from one of both moments."""
        return None if self.first_s is None else self.first_s - self._begin_s(latency_from)

    def e2el_s(self, latency_from: str) -> float | None:
        """Time to the last token, from one of both moments."""
        return None if self.last_s is None else self.last_s - self._begin_s(latency_from)

    def _begin_s(self, latency_from: str) -> float:
        return self.intended_s if latency_from == INTENDED else self.sent_s


def requests_of(result: Mapping[str, Any]) -> list[Request]:
    """The requests of a detailed result, in the order of the plan; empty for one without details.

    Results of `vllm bench serve` have no intended times, and times on a clock of their own: they count from the
    sending, and the first sending is 0.

    Raises:
        ValueError: the details are no lists of equal length, or hold what is no number.
    """
    names = ("start_times", "ttfts", "itls")
    if not all(isinstance(result.get(name), list) for name in names):
        return []
    num = len(result["start_times"])
    sent = [float(value) for value in result["start_times"]]
    intended = result.get("intended_times")
    if intended is None and sent:
        first = min(sent)
        sent = [value - first for value in sent]
    own = result.get("qanat") or {}
    latency_from = own.get("latency_from", INTENDED) if intended is not None else SENT
    columns = {
        "ttft": result["ttfts"],
        "gaps": result["itls"],
        "intended": intended if intended is not None else sent,
        "e2el": result.get("e2els") or [None] * num,
        "end": result.get("end_times") or [None] * num,
        "tokens": result.get("output_lens") or [None] * num,
        "error": result.get("errors") or [""] * num,
    }
    if any(len(column) != num for column in columns.values()):
        raise ValueError("the lists of the requests differ in length")
    rows = zip(sent, *columns.values(), strict=True)
    return [_request(latency_from, *row) for row in rows]


def _request(
    latency_from: str,
    sent_s: float,
    ttft_s: float,
    gaps_s: list[float],
    intended_s: float,
    e2el_s: float | None,
    end_s: float | None,
    num_tokens: int | None,
    error: str,
) -> Request:
    begin_s = float(intended_s) if latency_from == INTENDED else sent_s
    gaps = [float(gap) for gap in gaps_s]
    is_ok = not error and (ttft_s > 0 or bool(e2el_s))
    first_s = begin_s + ttft_s if is_ok and ttft_s > 0 else None
    last_s = None
    if is_ok:
        last_s = begin_s + e2el_s if e2el_s is not None else begin_s + ttft_s + math.fsum(gaps)
    over_s = float(end_s) if end_s is not None else last_s if last_s is not None else sent_s
    tokens = num_tokens if num_tokens is not None else len(gaps) + 1
    return Request(float(intended_s), sent_s, first_s, last_s, over_s, gaps, tokens)


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """Which share (in percent) of the values is no larger than each: at most `NUM_QUANTILES` points."""
    ordered = sorted(values)
    if not ordered:
        return []
    num = len(ordered)
    places: Sequence[int] = range(num)
    if num > NUM_QUANTILES:
        places = sorted({round(step * (num - 1) / (NUM_QUANTILES - 1)) for step in range(NUM_QUANTILES)})
    return [(ordered[0], 0.0), *((ordered[place], 100.0 * (place + 1) / num) for place in places)]


def tokens_over_time(requests: Sequence[Request]) -> list[tuple[float, float]]:
    """Output tokens a second in each of `NUM_BINS` parts of the run; answers in one piece count at their end."""
    length_s = max((request.end_s for request in requests), default=0.0)
    if length_s <= 0:
        return []
    counts = [0] * NUM_BINS
    for request in requests:
        if request.last_s is None:
            continue
        times = [request.last_s] * request.num_tokens
        if request.first_s is not None:
            times = list(accumulate(request.gaps_s, initial=request.first_s))
        for time_s in times:
            counts[min(max(int(NUM_BINS * time_s / length_s), 0), NUM_BINS - 1)] += 1
    bin_s = length_s / NUM_BINS
    return [((number + 0.5) * bin_s, count / bin_s) for number, count in enumerate(counts)]


def at_once_over_time(requests: Sequence[Request], *, is_waiting: bool) -> list[tuple[float, float]]:
    """Requests between intended and sending, or under way, in the middle of each part of the run."""
    length_s = max((request.end_s for request in requests), default=0.0)
    spans = [
        (request.intended_s, request.sent_s) if is_waiting else (request.sent_s, request.end_s)
        for request in requests
    ]
    marks = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    points, running, at = [], 0, 0
    for number in range(NUM_BINS if length_s > 0 else 0):
        time_s = (number + 0.5) * length_s / NUM_BINS
        while at < len(marks) and marks[at][0] <= time_s:
            running += marks[at][1]
            at += 1
        points.append((time_s, float(running)))
    return points
