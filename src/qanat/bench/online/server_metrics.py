"""What the server's own /metrics say of the run: the difference between two readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qanat.bench.client.client import Client
from qanat.bench.online.target import Target
from qanat.deploy.prometheus import Exposition, bounds_of, quantile, read_exposition

TIMES = {
    "queue_time": "request_queue_time_seconds",
    "prefill_time": "request_prefill_time_seconds",
    "ttft": "time_to_first_token_seconds",
    "e2el": "e2e_request_latency_seconds",
}
"""Histograms by the name that we give them; all begin with `PREFIX`."""
COUNTERS = {
    "prompt_tokens": "prompt_tokens",
    "prefix_cache_queries": "prefix_cache_queries",
    "prefix_cache_hits": "prefix_cache_hits",
    "num_preemptions": "num_preemptions",
}
PREFIX = "vllm:"
DRAFTS, DRAFTED, ACCEPTED = "num_drafts", "num_draft_tokens", "num_accepted_tokens"
BY_PLACE = "num_accepted_tokens_per_pos"


@dataclass(frozen=True)
class ServerMetrics:
    """Two readings of the same server."""

    before: Exposition
    after: Exposition

    def counter(self, name: str) -> float | None:
        """What a counter grew by; None if the server does not have it, or was started again."""
        samples = [
            sum(one.value for one in reading.all(PREFIX + name)) for reading in (self.before, self.after)
        ]
        if not self.after.all(PREFIX + name) or samples[1] < samples[0]:
            return None
        return samples[1] - samples[0]

    def total(self, name: str) -> float | None:
        """The same for a counter whose name may end with _total."""
        grown = self.counter(f"{name}_total")
        return self.counter(name) if grown is None else grown

    def time_ms(self, name: str) -> dict[str, float] | None:
        """Mean, median and 99th percentile of a histogram of seconds, as Prometheus estimates them."""
        count, total = self.counter(f"{name}_count"), self.counter(f"{name}_sum")
        if not count or total is None:
            return None
        readings = (self.before, self.after)
        before, after = (bounds_of(iter(one.all(f"{PREFIX}{name}_bucket"))) for one in readings)
        grown = {bound: value - before.get(bound, 0.0) for bound, value in after.items()}
        found = {"count": count, "mean_ms": 1e3 * total / count}
        for key, share in (("median_ms", 0.5), ("p99_ms", 0.99)):
            value = quantile(grown, share)
            if value is not None:
                found[key] = 1e3 * value
        return found

    def figures(self) -> dict[str, Any]:
        """All of it, for the result; without what the server does not have."""
        times = {key: value for key, name in TIMES.items() if (value := self.time_ms(name)) is not None}
        counters = {key: grown for key, name in COUNTERS.items() if (grown := self.total(name)) is not None}
        return {**times, **counters}

    def speculation(self) -> dict[str, Any]:
        """Figures of drafting in this run, with the keys of vLLM's result; empty without drafts."""
        drafts, drafted, accepted = (
            self.total(f"spec_decode_{name}") for name in (DRAFTS, DRAFTED, ACCEPTED)
        )
        if not drafts or not drafted or accepted is None:
            return {}
        before, after = (_by_place(reading) for reading in (self.before, self.after))
        rates = [(value - before.get(place, 0.0)) / drafts for place, value in sorted(after.items())]
        return {
            "spec_decode_acceptance_rate": 100 * accepted / drafted,
            "spec_decode_acceptance_length": 1 + accepted / drafts,
            "spec_decode_num_drafts": int(drafts),
            "spec_decode_draft_tokens": int(drafted),
            "spec_decode_accepted_tokens": int(accepted),
            "spec_decode_per_position_acceptance_rates": rates,
        }


def _by_place(reading: Exposition) -> Mapping[int, float]:
    found: dict[int, float] = {}
    for suffix in ("_total", ""):
        for sample in reading.all(f"{PREFIX}spec_decode_{BY_PLACE}{suffix}"):
            place = sample.labels.get("position", "")
            if place.isdecimal():
                found[int(place)] = found.get(int(place), 0.0) + sample.value
        if found:
            break
    return found


async def read_metrics(client: Client, target: Target) -> Exposition | None:
    """One reading; None from a server that has none."""
    reply = await client.ask(target.get("/metrics"))
    if not reply.is_ok:
        return None
    exposition = read_exposition(reply.body.decode(errors="replace"))
    return exposition if exposition.samples else None
