"""Figures of the router in Prometheus' text form, written here: the base has no library for it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from qanat.router.access_log import Record

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
PREFIX = "qanat_router_"
DURATIONS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
MAX_SERIES = 4096
"""Of one counter; what comes beyond is counted under "other"."""

Labels = tuple[str, ...]
Sample = tuple[Labels, float]


class Counter:
    """A number for each combination of labels; it only grows."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = PREFIX + name
        self._text = text
        self._labels = tuple(labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Counts once, or by an amount."""
        if labels not in self._values and len(self._values) >= MAX_SERIES:
            labels = ("other",) * len(self._labels)
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def value(self, *labels: str) -> float:
        """What was counted."""
        return self._values.get(labels, 0.0)

    def lines(self) -> Iterator[str]:
        """The figure as text."""
        yield from _lines(self.name, self._text, "counter", self._labels, self._values.items())


class Gauge:
    """A number that is asked for when it is read."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Iterable[Sample]]
    ) -> None:
        self.name = PREFIX + name
        self._text = text
        self._labels = tuple(labels)
        self._samples = samples

    def lines(self) -> Iterator[str]:
        """The figure as text."""
        yield from _lines(self.name, self._text, "gauge", self._labels, self._samples())


class Histogram:
    """How many values were at most so large, for each bound."""

    def __init__(self, name: str, text: str, bounds: Sequence[float] = DURATIONS_S) -> None:
        self.name = PREFIX + name
        self._text = text
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> Iterator[str]:
        """The figure as text."""
        yield from _head(self.name, self._text, "histogram")
        total = 0
        for bound, count in zip((*self._bounds, math.inf), self._counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{_number(bound)}"}} {total}'
        yield f"{self.name}_sum {_number(self._sum)}"
        yield f"{self.name}_count {total}"


class RouterMetrics:
    """All figures of one router. Requests are counted from their records; the rest by whoever does it."""

    def __init__(self) -> None:
        self.requests = Counter("requests_total", "Requests answered.", ("path", "status", "endpoint"))
        self.retried = Counter("retries_total", "Attempts that failed before the first byte.")
        self.continued = Counter("continuations_total", "Times that an answer went on elsewhere.")
        self.errors = Counter("errors_total", "Requests that ended otherwise than answered.", ("code",))
        self.choices = Counter("choices_total", "Choices by reason.", ("reason",))
        self.prompt_tokens = Counter("prompt_tokens_total", "Prompt tokens, as engines counted.")
        self.output_tokens = Counter("output_tokens_total", "Output tokens, as engines counted.")
        self.duration = Histogram("request_duration_seconds", "From a request to the end of its answer.")
        self.first_byte = Histogram("first_byte_seconds", "From a request to the first byte of its answer.")
        self.wait = Histogram("queue_wait_seconds", "In the router's own queue.")
        self._gauges: list[Gauge] = []

    def gauge(
        self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Iterable[Sample]]
    ) -> None:
        """Adds a figure that is asked for."""
        self._gauges.append(Gauge(name, text, labels, samples))

    def count(self, record: Record, path: str, status: int, duration_s: float) -> None:
        """A request has ended."""
        self.requests.add(path, str(status), record.endpoint)
        self.duration.add(duration_s)
        self.wait.add(record.wait_s)
        if record.first_byte_s is not None:
            self.first_byte.add(record.first_byte_s)
        if record.reason:
            self.choices.add(record.reason.partition("-")[0] if "%" in record.reason else record.reason)
        if record.error:
            self.errors.add(record.error)
        if record.num_retries:
            self.retried.add(amount=record.num_retries)
        if record.num_continued:
            self.continued.add(amount=record.num_continued)
        self.prompt_tokens.add(amount=record.num_prompt_tokens or 0)
        self.output_tokens.add(amount=record.num_output_tokens or 0)

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        own = [each for each in vars(self).values() if isinstance(each, Counter | Histogram)]
        return "\n".join(line for each in (*own, *self._gauges) for line in each.lines()) + "\n"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _lines(name: str, text: str, kind: str, labels: Labels, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _head(name, text, kind)
    for values, number in samples:
        pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
        yield f"{name}{{{pairs}}} {_number(number)}" if pairs else f"{name} {_number(number)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(float(value))
