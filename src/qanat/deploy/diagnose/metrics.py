"""Figures of a running server: counters as what happened between two readings, or since it was started."""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.logs import Metric
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.prometheus import Exposition, Sample, quantile, read_exposition
from qanat.deploy.text_files import require_regular

TIMEOUT_S = 10.0
MAX_BYTES = 64 << 20
MAX_FIGURE = 1e18


@dataclass(frozen=True)
class Histogram:
    """Observations: how many, their sum, and how many lie below each bound."""

    count: float
    total: float
    buckets: Mapping[float, float]

    @property
    def mean(self) -> float | None:
        """Their mean; None without any."""
        return self.total / self.count if self.count > 0 else None

    def quantile(self, share: float) -> float | None:
        """The value below which a share of them lies; None without any."""
        return quantile(self.buckets, share)

    def share_below(self, value: float) -> float | None:
        """The share of them below a value, by the nearest bound above it; None without any."""
        bounds = [bound for bound in sorted(self.buckets) if bound >= value]
        if self.count <= 0 or not bounds:
            return None
        lower = max((bound for bound in self.buckets if bound < value), default=0.0)
        inside = self.buckets[bounds[0]] - self.buckets.get(lower, 0.0)
        width = bounds[0] - lower
        part = (value - lower) / width if 0 < width < float("inf") else 1.0
        return (self.buckets.get(lower, 0.0) + inside * part) / self.count


class Metrics:
    """What /metrics says, once or twice.

    Args:
        after: the later reading, or the only one.
        before: the earlier one; None without.
        seconds: between both.
    """

    def __init__(
        self, after: Exposition, before: Exposition | None = None, seconds: float | None = None
    ) -> None:
        self.after = after
        self.before = before
        self.seconds = seconds
        self.is_restarted = False
        if before is not None and self._went_back():
            self.is_restarted, self.before = True, None
        if self.before is not None and not self._has_traffic():
            self.before = None
            self.is_idle = True
        else:
            self.is_idle = False

    @property
    def basis(self) -> str:
        """What counters count."""
        if self.before is not None:
            return (
                f"in the {self.seconds:.0f} s between both readings"
                if self.seconds
                else "between both readings"
            )
        why = ""
        if self.is_restarted:
            why = " (it was started again between both readings)"
        elif self.is_idle:
            why = " (no request ended between both readings)"
        return f"since the server was started{why}"

    def counter(self, name: str) -> float | None:
        """What a counter grew by, over all engines; None if the server does not have it."""
        samples = self._samples(name, "_total")
        return sum(samples.values()) if samples is not None else None

    def counters(self, name: str, label: str) -> dict[str, float]:
        """What a counter grew by, for each value of a label."""
        found: dict[str, float] = {}
        for labels, value in (self._samples(name, "_total") or {}).items():
            key = dict(labels).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found

    def gauge(self, name: str) -> float | None:
        """A gauge over all engines: the sum, of shares the largest; None if the server does not have it."""
        values = self.gauges(name)
        if not values:
            return None
        return max(values) if name == "cache_usage" else sum(values)

    def gauges(self, name: str) -> list[float]:
        """A gauge of each engine."""
        for known in _metric(name).names:
            samples = self.after.all(known)
            if samples:
                return [sample.value for sample in samples if is_figure(sample.value)]
        return []

    def histogram(self, name: str) -> Histogram | None:
        """Observations over all engines; None if the server does not have it."""
        count, total = self._samples(name, "_count"), self._samples(name, "_sum")
        if count is None or total is None:
            return None
        buckets: dict[float, float] = {}
        for labels, value in (self._samples(name, "_bucket") or {}).items():
            try:
                bound = float(dict(labels).get("le", ""))
            except ValueError:
                continue
            buckets[bound] = buckets.get(bound, 0.0) + value
        return Histogram(sum(count.values()), sum(total.values()), buckets)

    def label(self, name: str, label: str) -> str | None:
        """A label of a metric that holds settings; None if it is not there."""
        for known in _metric(name).names:
            for sample in self.after.all(known):
                if label in sample.labels:
                    return sample.labels[label]
        return None

    def _samples(self, name: str, suffix: str) -> dict[tuple[tuple[str, str], ...], float] | None:
        for known in _metric(name).names:
            for spelled in dict.fromkeys((known + suffix, known if suffix == "_total" else known + suffix)):
                samples = self.after.all(spelled)
                if samples:
                    return _differences(samples, self.before.all(spelled) if self.before else [])
        return None

    def _went_back(self) -> bool:
        before = self.before
        if before is None:
            return False
        return any(
            sum(one.value for one in self.after.all(name)) < sum(one.value for one in before.all(name))
            for metric in ("prompt_tokens", "generation_tokens", "finished")
            for known in _metric(metric).names
            for name in (known + "_total",)
        )

    def _has_traffic(self) -> bool:
        return any(
            (self.counter(name) or 0) > 0 for name in ("prompt_tokens", "generation_tokens", "finished")
        )


def _differences(after: list[Sample], before: list[Sample]) -> dict[tuple[tuple[str, str], ...], float]:
    old = {tuple(sorted(one.labels.items())): one.value for one in before if is_figure(one.value)}
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for one in after:
        if not is_figure(one.value):
            continue
        key = tuple(sorted(one.labels.items()))
        found[key] = one.value - old.get(key, 0.0)
    return found


def is_figure(value: float) -> bool:
    """Whether a value can be one of a server: neither infinite nor negative nor no number."""
    return 0 <= value < MAX_FIGURE


def _metric(name: str) -> Metric:
    return cast(Metric, load_knowledge().tables["metrics"].entries[name])


def read_metrics(source: str, before: str | None, interval_s: float) -> Metrics:
    """Figures of a server.

    Args:
        source: its address, which is read twice, or a file with what /metrics said.
        before: an earlier file; with an address there is none.
        interval_s: seconds between both readings of an address.

    Raises:
        ConfigError: it cannot be read, or says nothing of vLLM.
    """
    if source.startswith(("http://", "https://")):
        if before is not None:
            raise ConfigError(
                "--before goes with a file for --metrics; an address is read twice.", param="--before"
            )
        first = _checked(_fetch(source), source)
        started = time.monotonic()
        time.sleep(interval_s)
        second = _checked(_fetch(source), source)
        return Metrics(second, first, time.monotonic() - started)
    after = _checked(_read(source), source)
    return Metrics(after, _checked(_read(before), before) if before else None)


def _checked(text: str, source: str) -> Exposition:
    exposition = read_exposition(text)
    if not any(name.startswith("vllm:") for name in exposition.samples):
        raise ConfigError(
            f"{source} holds no metrics of vLLM (names that begin with vllm:); is it what /metrics says?",
            param="--metrics",
        )
    return exposition


def _read(path: str) -> str:
    try:
        require_regular(Path(path), "--metrics")
        return Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", param="--metrics") from None


def _fetch(address: str) -> str:
    url = address if address.rstrip("/").endswith("/metrics") else address.rstrip("/") + "/metrics"
    outcome: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()

    def fetch() -> None:
        try:
            outcome.put(_answer(url))
        except Exception as error:
            outcome.put(error)

    # Timeouts of sockets begin anew with every byte; a server that drips must not hold the command.
    threading.Thread(target=fetch, daemon=True).start()
    try:
        got = outcome.get(timeout=TIMEOUT_S)
    except queue.Empty:
        raise ConfigError(f"{url} did not answer in {TIMEOUT_S:.0f} s.", param="--metrics") from None
    if isinstance(got, urllib.error.HTTPError):
        raise ConfigError(f"{url} answered {got.code}; is metrics switched off there?", param="--metrics")
    if isinstance(got, http.client.HTTPException):
        raise ConfigError(f"{url} does not speak HTTP; is it the port of the API?", param="--metrics")
    if isinstance(got, Exception):
        raise ConfigError(f"{url} cannot be reached: {getattr(got, 'reason', got)}", param="--metrics")
    return got


def _answer(url: str) -> str:
    # A web proxy of the environment is of no use for a server of one's own, and often in the way.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=TIMEOUT_S) as reply:
        return cast(bytes, reply.read(MAX_BYTES)).decode("utf-8", errors="replace")
