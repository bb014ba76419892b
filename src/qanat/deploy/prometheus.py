"""Reads the text that /metrics gives: strict about what it takes, patient about what it does not know."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_FAULTS = 20

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|(?=\}))')
_VALUE = re.compile(r"\s*([^\s]+)(?:\s+(-?\d+(?:\.\d+)?))?(?:\s+#.*)?\s*$")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Sample:
    """One line: a name, its labels, and the value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass
class Exposition:
    """What one reading of /metrics says.

    Attributes:
        samples: by name, in order.
        faults: lines that could not be read, with their numbers; the first `MAX_FAULTS`.
        num_faults: how many there were.
    """

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    num_faults: int = 0

    def all(self, name: str) -> list[Sample]:
        """Samples of this name; empty if there are none."""
        return self.samples.get(name, [])


def read_exposition(text: str) -> Exposition:
    """Reads the text format of Prometheus (OpenMetrics' exemplars and time stamps are passed over)."""
    exposition = Exposition()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        sample = _sample(line)
        if sample is not None:
            exposition.samples.setdefault(sample.name, []).append(sample)
            continue
        exposition.num_faults += 1
        if len(exposition.faults) < MAX_FAULTS:
            exposition.faults.append(f"line {number}: {line[:80]}")
    return exposition


def _sample(line: str) -> Sample | None:
    name = _NAME.match(line)
    if name is None:
        return None
    rest = line[name.end() :].lstrip()
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        at = 1
        while rest[at : at + 1].strip() != "}":
            label = _LABEL.match(rest, at)
            if label is None:
                at += len(rest[at:]) - len(rest[at:].lstrip())
                if rest[at : at + 1] == "}":
                    break
                return None
            labels[label.group(1)] = _unescape(label.group(2))
            at = label.end()
        rest = rest[at + 1 :]
    elif rest == line[name.end() :]:
        return None
    value = _VALUE.match(rest)
    number = _number(value.group(1)) if value else None
    return Sample(name.group(), labels, number) if number is not None else None


def _unescape(text: str) -> str:
    return re.sub(r'\\[\\"n]', lambda match: _ESCAPES[match.group()], text)


def _number(text: str) -> float | None:
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """The value below which a share of a histogram's observations lies, as Prometheus estimates it.

    Args:
        buckets: upper bounds with the number of observations up to them.
        share: 0 to 1.

    Returns:
        None without observations; the largest finite bound if it lies above.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total:
            if math.isinf(bound):
                return lower
            inside = buckets[bound] - below
            part = (share * total - below) / inside if inside > 0 else 1.0
            return lower + (bound - lower) * part
        lower, below = bound, buckets[bound]
    return lower


def bounds_of(samples: Iterator[Sample]) -> dict[float, float]:
    """Buckets of a histogram, summed over everything but their bound."""
    buckets: dict[float, float] = {}
    for sample in samples:
        bound = _number(sample.labels.get("le", ""))
        if bound is not None and not math.isnan(bound):
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
    return buckets
