"""Reads the server's /metrics now and then during a run, for its timeline.

So that the client keeps its times, a reading is only cut down to the lines that are wanted, by one search; what they
say is understood after the run. Readings have a connection of their own, and are no part of what is measured.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from qanat.bench.client.client import Client
from qanat.bench.client.recording import Store
from qanat.bench.online.server_metrics import PREFIX
from qanat.bench.online.target import Target
from qanat.deploy.prometheus import Exposition, read_exposition

MAX_SAMPLES = 512
"""When there are more, every second one is dropped and the interval doubles."""
MAX_FAILURES = 3
"""So many in a row end the readings: whatever is wrong, asking again would only disturb the run."""
ASK_TIMEOUT_S = 10.0
GENERATED = "generation_tokens"
RATIOS = {
    "prefix_hit_percent": ("prefix_cache_hits", "prefix_cache_queries", 100.0),
    "acceptance_percent": ("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens", 100.0),
    "queue_time_ms": ("request_queue_time_seconds_sum", "request_queue_time_seconds_count", 1e3),
}
"""Growth of the first counter by that of the second, times the third."""
GAUGES = {"running": "num_requests_running", "waiting": "num_requests_waiting"}
USED = "kv_cache_usage_perc"
_NAMES = [GENERATED, USED, *GAUGES.values(), *(name for one in RATIOS.values() for name in one[:2])]
_LINES = re.compile(rf"^{PREFIX}(?:{'|'.join(_NAMES)})(?:_total)?[ {{].*".encode(), re.MULTILINE)


class MetricsSampler:
    """Readings of one run. To be made where an event loop runs.

    Args:
        client: with connections of its own.
        target: the server.
        interval_s: between two readings, at first.

    Attributes:
        output_rate: tokens a second between the last two readings; None before that.
        num_failures: readings that failed.
    """

    def __init__(self, client: Client, target: Target, interval_s: float) -> None:
        self._client = client
        self._request = target.get("/metrics")
        self._interval_s = interval_s
        self._samples: list[tuple[int, bytes]] = []
        self._generated: tuple[int, float] | None = None
        self.output_rate: float | None = None
        self.num_failures = 0

    async def run(self) -> None:
        """Reads until it is cancelled, or the server no longer answers."""
        num_in_a_row = 0
        while num_in_a_row < MAX_FAILURES:
            await asyncio.sleep(self._interval_s)
            reply = await self._client.ask(self._request, ASK_TIMEOUT_S)
            if reply.is_ok:
                num_in_a_row = 0
                self.keep(time.monotonic_ns(), reply.body)
            else:
                num_in_a_row += 1
                self.num_failures += 1

    def keep(self, now_ns: int, body: bytes) -> None:
        """Takes a reading that has just come."""
        lines = b"\n".join(_LINES.findall(body))
        self._samples.append((now_ns, lines))
        if len(self._samples) > MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._interval_s *= 2
        self._rate(now_ns, lines)

    def _rate(self, now_ns: int, lines: bytes) -> None:
        start = f"{PREFIX}{GENERATED}".encode()
        try:
            value = sum(
                float(line.rsplit(b" ", 1)[1]) for line in lines.split(b"\n") if line.startswith(start)
            )
        except (ValueError, IndexError):
            return
        if start not in lines:
            return
        if self._generated is not None and now_ns > self._generated[0]:
            self.output_rate = max(0.0, value - self._generated[1]) / ((now_ns - self._generated[0]) / 1e9)
        self._generated = (now_ns, value)

    def timeline(
        self, start_ns: int, end_ns: int, before: Exposition, after: Exposition | None
    ) -> dict[str, Any]:
        """What the readings say, for the result: times from the start of the run, and a value or None for each.

        Args:
            start_ns: of the run.
            end_ns: of the run.
            before: the reading before it.
            after: the one after it; None where it failed.
        """
        readings = [(start_ns, before)]
        readings += [(at_ns, read_exposition(text.decode(errors="replace"))) for at_ns, text in self._samples]
        if after is not None:
            readings.append((end_ns, after))
        series: dict[str, list[float | None]] = {}
        for name, value_of in _series().items():
            values = [
                value_of(first, second, (at_ns - from_ns) / 1e9)
                for (from_ns, first), (at_ns, second) in zip(readings, readings[1:], strict=False)
            ]
            if any(value is not None for value in values):
                series[name] = values
        times = [(at_ns - start_ns) / 1e9 for at_ns, _ in readings[1:]]
        return {
            "interval_s": self._interval_s,
            "num_failed": self.num_failures,
            "times_s": times,
            "series": series,
        }


ValueOf = Callable[[Exposition, Exposition, float], float | None]
"""The value of a series, of two readings and the seconds between them."""


def _series() -> Mapping[str, ValueOf]:
    def gauge(name: str, factor: float = 1.0) -> ValueOf:
        return lambda _, now, __: None if (value := _sum(now, name)) is None else factor * value

    def ratio(above: str, below: str, factor: float) -> ValueOf:
        def value_of(first: Exposition, second: Exposition, _: float) -> float | None:
            grown, by = _growth(first, second, above), _growth(first, second, below)
            return factor * grown / by if grown is not None and by else None

        return value_of

    def rate(first: Exposition, second: Exposition, passed_s: float) -> float | None:
        grown = _growth(first, second, GENERATED)
        return grown / passed_s if grown is not None and passed_s > 0 else None

    def used(_: Exposition, now: Exposition, __: float) -> float | None:
        samples = now.all(PREFIX + USED)
        return 100 * sum(sample.value for sample in samples) / len(samples) if samples else None

    gauges = {key: gauge(name) for key, name in GAUGES.items()}
    ratios = {key: ratio(*names) for key, names in RATIOS.items()}
    return {**gauges, "kv_cache_used_percent": used, "output_tokens_per_s": rate, **ratios}


def _sum(reading: Exposition, name: str) -> float | None:
    samples = reading.all(f"{PREFIX}{name}_total") or reading.all(PREFIX + name)
    return sum(sample.value for sample in samples) if samples else None


def _growth(first: Exposition, second: Exposition, name: str) -> float | None:
    """None if the server does not have it, or was started again."""
    before, after = _sum(first, name), _sum(second, name)
    return after - before if before is not None and after is not None and after >= before else None


def own_client(target: Target, tls: Any) -> Client:
    """A client for readings: its connections and its memory are apart from those of the run."""
    return Client(target.address, tls, Store(), ASK_TIMEOUT_S)
