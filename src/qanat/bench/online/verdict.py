"""Whether the figures of a run can be believed, and why not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from qanat.bench.client.load import LoadRecord
from qanat.bench.online.answer import BY_CHUNKS, BY_WORDS, Answer
from qanat.bench.online.measures import INTENDED, e2el_s, ttft_s
from qanat.bench.online.statistics import Distribution, ranks_differ

MAX_CLIENT_DELAY_S = 0.01
MAX_CLIENT_SHARE = 0.1
"""The client may be late by so much, or by this share of the median time to first token."""
MIN_ACHIEVED = 0.95
MIN_DRIFT, MIN_DRIFT_ERRORS = 1.25, 3.0
"""Latency drifts if the last third's median is larger by so much, and by so many standard errors."""
MAX_CACHED_SHARE = 0.01
MIN_DISTINCT = 0.2
"""Fewer different pairs of neighbours than this share of an output's tokens is a loop."""


class Grade(IntEnum):
    """How much a finding weighs."""

    NOTE = 0
    DOUBTFUL = 1
    INVALID = 2


WORDS = {Grade.NOTE: "valid", Grade.DOUBTFUL: "doubtful", Grade.INVALID: "invalid"}


@dataclass(frozen=True)
class Finding:
    """One thing that was seen.

    Attributes:
        grade: how much it weighs.
        code: a stable name.
        text: what was seen, and what helps.
    """

    grade: Grade
    code: str
    text: str


@dataclass(frozen=True)
class Run:
    """What is judged.

    Attributes:
        load: how the client did.
        answers: all of them.
        num_planned: requests that were to be sent.
        rate: requests a second that were asked for; infinite without a rate.
        max_concurrency: bound; 0 for none.
        percentiles: that are reported.
        shares_prefixes: prompts begin alike on purpose.
        cached_share: of the prompts' tokens, out of the server's prefix cache; None if unknown.
        has_speculation: the server drafted.
    """

    load: LoadRecord
    answers: Sequence[Answer]
    num_planned: int
    rate: float
    max_concurrency: int
    percentiles: Sequence[float]
    shares_prefixes: bool
    cached_share: float | None
    has_speculation: bool


def judge(run: Run) -> list[Finding]:
    """Everything that was seen, the worst first."""
    findings = [
        *_failures(run),
        *_client(run),
        *_samples(run),
        *_rate(run),
        *_drift(run),
        *_prompts(run),
        *_outputs(run),
    ]
    return sorted(findings, key=lambda finding: -finding.grade)


def grade_of(findings: Iterable[Finding]) -> Grade:
    """The worst of them."""
    return max((finding.grade for finding in findings), default=Grade.NOTE)


def _failures(run: Run) -> Iterator[Finding]:
    kinds = Counter(answer.failure for answer in run.answers if not answer.is_ok)
    num_failed, num_sent = sum(kinds.values()), len(run.answers)
    if num_failed:
        listed = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
        first = next(answer.message for answer in run.answers if not answer.is_ok)
        grade = Grade.INVALID if num_failed == num_sent else Grade.DOUBTFUL
        text = f"{num_failed} of {num_sent} requests failed ({listed}); the first said: {first}"
        yield Finding(grade, "errors", text)
    if not num_sent:
        yield Finding(Grade.INVALID, "nothing_sent", "no request was sent")
    elif num_sent < run.num_planned or run.load.is_stopped:
        text = f"the run was ended after {num_sent} of {run.num_planned} requests had been sent"
        yield Finding(Grade.DOUBTFUL, "stopped", text)


def client_delays_s(answers: Iterable[Answer]) -> list[float]:
    """How late the client itself sent each request, in order of size."""
    return sorted(max(0.0, answer.sent_s - answer.ready_s) for answer in answers)


def _client(run: Run) -> Iterator[Finding]:
    delays = client_delays_s(run.answers)
    if not delays:
        return
    firsts = sorted(
        value for answer in run.answers if answer.is_ok and (value := ttft_s(answer, INTENDED)) is not None
    )
    allowed_s = MAX_CLIENT_DELAY_S
    if firsts:
        allowed_s = max(allowed_s, MAX_CLIENT_SHARE * Distribution(firsts).percentile(50))
    late_s = Distribution(delays).percentile(99)
    beats = sorted(run.load.beat_delays_s)
    loop_s = Distribution(beats).percentile(99) if beats else 0.0
    share = run.load.cpu_s / run.load.wall_s if run.load.wall_s > 0 else 0.0
    if late_s > allowed_s:
        text = (
            f"the client was late: the 99th percentile of its own delay is {1e3 * late_s:.1f} ms, "
            f"{1e3 * allowed_s:.1f} ms are allowed; it used {share:.0%} of a core"
        )
        yield Finding(Grade.INVALID, "client_late", text)
    elif loop_s > allowed_s:
        text = (
            f"the client was overloaded: it looked {1e3 * loop_s:.1f} ms late at what came in (99th percentile), "
            f"{1e3 * allowed_s:.1f} ms are allowed; it used {share:.0%} of a core"
        )
        yield Finding(Grade.INVALID, "client_overloaded", text)


def _samples(run: Run) -> Iterator[Finding]:
    count = sum(answer.is_ok for answer in run.answers)
    largest = max((percent for percent in run.percentiles if percent < 100), default=50.0)
    needed = math.ceil(round(100 / (100 - largest), 6))
    if 0 < count < needed:
        text = f"{count} answers are too few for the {largest:g}th percentile: it takes {needed} at least"
        yield Finding(Grade.DOUBTFUL, "too_few_samples", text)


def _rate(run: Run) -> Iterator[Finding]:
    """Whether the requests were sent as fast as was asked."""
    sent = sorted(answer.sent_s for answer in run.answers)
    meant = sorted(answer.intended_s for answer in run.answers)
    if math.isinf(run.rate) or len(sent) < 10 or sent[-1] <= 0:
        return
    achieved = run.rate * meant[-1] / sent[-1]
    if achieved < MIN_ACHIEVED * run.rate:
        why = f"; --max-concurrency {run.max_concurrency} held them back" if run.max_concurrency else ""
        text = f"{achieved:.2f} requests a second were sent where {run.rate:g} were asked for{why}"
        yield Finding(Grade.DOUBTFUL, "rate_not_reached", text)


def _drift(run: Run) -> Iterator[Finding]:
    """Whether latency grew from the first third of the run to the last."""
    if math.isinf(run.rate) and not run.max_concurrency:
        return
    good = sorted((answer for answer in run.answers if answer.is_ok), key=lambda answer: answer.intended_s)
    third = len(good) // 3
    first, last = (
        [e2el_s(answer, INTENDED) for answer in part] for part in (good[:third], good[len(good) - third :])
    )
    errors = ranks_differ(first, last)
    if errors < MIN_DRIFT_ERRORS:
        return
    before, after = (Distribution(sorted(part)).percentile(50) for part in (first, last))
    if after > MIN_DRIFT * before:
        text = (
            f"latency grew during the run: the median end-to-end latency of the last third is {1e3 * after:.0f} ms, "
            f"that of the first {1e3 * before:.0f} ms; no steady state was reached"
        )
        yield Finding(Grade.DOUBTFUL, "drift", text)


def _prompts(run: Run) -> Iterator[Finding]:
    if run.cached_share is not None and run.cached_share > MAX_CACHED_SHARE and not run.shares_prefixes:
        text = (
            f"{run.cached_share:.1%} of the prompts' tokens came out of the server's prefix cache, where none was "
            "meant to: an earlier run sent the same prompts. --run-id TEXT makes others."
        )
        yield Finding(Grade.DOUBTFUL, "prefix_cache", text)


def distinct_pairs(answers: Iterable[Answer]) -> float | None:
    """Different pairs of neighbours by tokens, the mean over outputs that are long enough; None without any."""
    shares = [one.distinct_pairs for one in answers if one.is_ok and one.distinct_pairs is not None]
    return sum(shares) / len(shares) if shares else None


def _outputs(run: Run) -> Iterator[Finding]:
    good = [answer for answer in run.answers if answer.is_ok]
    counters: Mapping[str, int] = Counter(answer.counter for answer in good)
    for counter in (BY_CHUNKS, BY_WORDS):
        if counters.get(counter):
            text = (
                f"the server does not count tokens: {counters[counter]} answers are counted by the {counter}"
            )
            yield Finding(Grade.DOUBTFUL, "not_counted", text)
    single = sum(answer.is_single_chunk for answer in good)
    if single:
        text = (
            f"{single} answers came in a single chunk with all tokens: their time to first token is not meaningful, "
            "it is that of the whole answer"
        )
        yield Finding(Grade.DOUBTFUL, "single_chunk", text)
    distinct = distinct_pairs(good)
    if distinct is not None and distinct < MIN_DISTINCT:
        grade = Grade.DOUBTFUL if run.has_speculation else Grade.NOTE
        text = (
            f"outputs repeat themselves: {distinct:.2f} different pairs of tokens for each token; drafts are accepted "
            "more often than in real answers"
        )
        yield Finding(grade, "repetition", text)
