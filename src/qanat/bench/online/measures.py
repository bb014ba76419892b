"""The times of answers: definitions of `vllm bench serve`, from the intended and from the actual moment of sending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qanat.bench.online.answer import Answer
from qanat.bench.online.statistics import Distribution

INTENDED, SENT = "intended", "sent"
METRICS: Mapping[str, str] = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
"""Title by name, in the order of the report."""


def begin_s(answer: Answer, latency_from: str) -> float:
    """The moment that latencies count from."""
    return answer.intended_s if latency_from == INTENDED else answer.sent_s


def ttft_s(answer: Answer, latency_from: str) -> float | None:
    """To the first chunk with a token; None for an answer that was not streamed."""
    return answer.chunk_times_s[0] - begin_s(answer, latency_from) if answer.is_streamed else None


def e2el_s(answer: Answer, latency_from: str) -> float:
    """To the last chunk of the answer."""
    return answer.last_chunk_s - begin_s(answer, latency_from)


def tpot_s(answer: Answer) -> float | None:
    """The time after the first token, shared among the others; None for fewer than two tokens."""
    if not answer.is_streamed or answer.num_output_tokens < 2:
        return None
    return (answer.last_chunk_s - answer.chunk_times_s[0]) / (answer.num_output_tokens - 1)


def token_gaps_s(answer: Answer) -> list[float]:
    """The time between each two tokens: one fewer than there are tokens.

    Several tokens in one chunk share the time since the chunk before it; those beside the first token came with it.
    """
    gaps: list[float] = []
    last_s = 0.0
    for time_s, count in zip(answer.chunk_times_s, answer.chunk_tokens, strict=True):
        if not count:
            continue
        if not last_s:
            gaps += [0.0] * (count - 1)
        else:
            gaps += [(time_s - last_s) / count] * count
        last_s = time_s
    return gaps


def chunk_gaps_s(answer: Answer) -> list[float]:
    """The time between each two chunks: what vLLM's command calls inter-token latency."""
    times = answer.chunk_times_s
    return [times[number] - times[number - 1] for number in range(1, len(times))]


@dataclass(frozen=True)
class Slos:
    """Bounds that a good request keeps, in seconds by metric; `ttft`, `tpot` and `e2el`."""

    bounds_s: Mapping[str, float]
    latency_from: str = INTENDED

    def holds(self, answer: Answer) -> bool:
        """True if an answer keeps all of them; one token alone has a time per token of 0, as in vLLM's command."""
        if not answer.is_ok:
            return False
        values = {
            "ttft": ttft_s(answer, self.latency_from),
            "tpot": tpot_s(answer) or 0.0,
            "e2el": e2el_s(answer, self.latency_from),
        }
        return all(
            (value := values[name]) is not None and value <= bound for name, bound in self.bounds_s.items()
        )


@dataclass(frozen=True)
class Measured:
    """Values of one metric in seconds: of all answers together, and by answer."""

    values: Distribution
    by_answer: Sequence[Sequence[float]]


def measure(answers: Iterable[Answer], values_of: Callable[[Answer], Sequence[float]]) -> Measured | None:
    """One metric over complete answers; None where none of them has a value."""
    by_answer = [values for answer in answers if answer.is_ok and (values := values_of(answer))]
    if not by_answer:
        return None
    return Measured(Distribution(sorted(value for values in by_answer for value in values)), by_answer)


def values_of(metric: str, latency_from: str) -> Callable[[Answer], Sequence[float]]:
    """Gives the values of an answer for a metric of `METRICS`."""
    if metric == "itl":
        return token_gaps_s
    if metric == "e2el":
        return lambda answer: (e2el_s(answer, latency_from),)
    one = tpot_s if metric == "tpot" else lambda answer: ttft_s(answer, latency_from)
    return lambda answer: () if (value := one(answer)) is None else (value,)


def most_at_once(answers: Iterable[Answer]) -> int:
    """The largest number of complete answers that were under way at one time."""
    marks = [mark for answer in answers if answer.is_ok for mark in ((answer.sent_s, 1), (answer.end_s, -1))]
    most = running = 0
    for _, change in sorted(marks):
        running += change
        most = max(most, running)
    return most


def most_tokens_in_a_second(answers: Iterable[Answer]) -> int:
    """Tokens of the fullest second, counted from the start of the run."""
    counts: dict[int, int] = {}
    for answer in answers:
        if answer.is_ok:
            for time_s, count in zip(answer.chunk_times_s, answer.chunk_tokens, strict=True):
                counts[int(time_s)] = counts.get(int(time_s), 0) + count
    return max(counts.values(), default=0)
