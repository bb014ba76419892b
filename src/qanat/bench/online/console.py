"""The result for a person: the table of `vllm bench serve`, and below it what ours has beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qanat.bench.online.measures import INTENDED, METRICS

WIDTH = 50
NOT_THERE = "n/a"


def table_lines(
    result: Mapping[str, Any], metrics: Sequence[str], percentiles: Sequence[float]
) -> Iterator[str]:
    """The table, in the layout that scripts read."""
    yield f"{' Serving Benchmark Result ':=^{WIDTH}}"
    yield _row("Successful requests:", result["completed"])
    yield _row("Failed requests:", result["failed"])
    if result["max_concurrency"] is not None:
        yield _row("Maximum request concurrency:", result["max_concurrency"])
    if result["request_rate"] != "inf":
        yield _row("Request rate configured (RPS):", result["request_rate"], 2)
    yield _row("Benchmark duration (s):", result["duration"], 2)
    yield _row("Total input tokens:", result["total_input_tokens"])
    yield _row("Total generated tokens:", result["total_output_tokens"])
    yield _row("Request throughput (req/s):", result["request_throughput"], 2)
    if result["request_goodput"] is not None:
        yield _row("Request goodput (req/s):", result["request_goodput"], 2)
    yield _row("Output token throughput (tok/s):", result["output_throughput"], 2)
    yield _row("Peak output token throughput (tok/s):", result["max_output_tokens_per_s"], 2)
    yield _row("Peak concurrent requests:", float(result["max_concurrent_requests"]), 2)
    yield _row("Total token throughput (tok/s):", result["total_token_throughput"], 2)
    for name in metrics:
        yield f"{METRICS[name]:-^{WIDTH}}"
        shown = name.upper()
        yield _row(f"Mean {shown} (ms):", result[f"mean_{name}_ms"], 2)
        yield _row(f"Median {shown} (ms):", result[f"median_{name}_ms"], 2)
        for percent in percentiles:
            yield _row(f"P{percent:g} {shown} (ms):", result[f"p{percent:g}_{name}_ms"], 2)
    if "spec_decode_acceptance_rate" in result:
        yield f"{'Speculative Decoding':-^{WIDTH}}"
        yield _row("Acceptance rate (%):", result["spec_decode_acceptance_rate"], 2)
        yield _row("Acceptance length:", result["spec_decode_acceptance_length"], 2)
        yield _row("Drafts:", result["spec_decode_num_drafts"])
        yield _row("Draft tokens:", result["spec_decode_draft_tokens"])
        yield _row("Accepted tokens:", result["spec_decode_accepted_tokens"])
        yield from (
            _row(f"Position {place} (%):", 100 * rate, 2)
            for place, rate in enumerate(result["spec_decode_per_position_acceptance_rates"])
        )
    yield "=" * WIDTH


def more_lines(
    result: Mapping[str, Any], metrics: Sequence[str], percentiles: Sequence[float]
) -> Iterator[str]:
    """What the table has no place for: the other moment to count from, intervals, client, server, verdict."""
    own = result["qanat"]
    latency_from = own["latency_from"]
    other = "sent" if latency_from == INTENDED else INTENDED
    yield f"Latency counts from the {_moment(latency_from)} of each request; from the {_moment(other)} it is:"
    for name in (name for name in metrics if name in ("ttft", "e2el")):
        yield "  " + _values(name, own[f"from_{other}"], percentiles)
    if own["chunk_gaps"]["num_chunks_of_several"]:
        yield "Several tokens came in one chunk; the time between chunks, which vLLM's command calls ITL:"
        yield "  " + _values("chunk_gap", own["chunk_gaps"], percentiles)
    intervals = [(key, value) for key, value in own["confidence_95"].items() if value is not None]
    if intervals:
        yield "95 % confidence: " + ", ".join(
            f"{key.removesuffix('_ms').replace('_', ' ')} {low:.2f} to {high:.2f} ms"
            for key, (low, high) in intervals
        )
    yield from _client_lines(own["client"])
    yield from _server_lines(own)
    yield f"Verdict: {own['verdict']}"
    for finding in own["findings"]:
        yield f"  {finding['grade']}: {finding['text']} [{finding['code']}]"


def _client_lines(client: Mapping[str, Any]) -> Iterator[str]:
    delay, wait = client["send_delay_ms"], client["wait_for_place_ms"]
    if delay is None:
        return
    yield (
        f"Client: sent {delay['p99']:.2f} ms late (99th percentile), used {client['cpu_share']:.0%} of a core, opened "
        f"{client['num_connections']} connections"
    )
    if wait is not None and wait["max"] > 0:
        yield (
            f"        requests waited {wait['p50']:.2f} ms (median), {wait['p99']:.2f} ms (99th percentile) for a "
            "place among the concurrent ones"
        )


def _server_lines(own: Mapping[str, Any]) -> Iterator[str]:
    server, prompts, outputs = own["server"], own["prompts"], own["outputs"]
    if server:
        for key, title in (
            ("queue_time", "in the queue"),
            ("prefill_time", "for the prompt"),
            ("ttft", "to the first token"),
        ):
            if key in server:
                yield f"Server: {title}: mean {server[key]['mean_ms']:.2f} ms"
        if server.get("num_preemptions"):
            yield f"Server: {server['num_preemptions']:.0f} preemptions"
    if prompts["num_compared"]:
        added = prompts["num_added_to_each"]
        yield (
            f"Prompts: {prompts['num_of_meant_length']} of {prompts['num_compared']} have the length that was meant; "
            f"mean {prompts['mean_meant']:.1f} meant, {prompts['mean_counted_by_server']:.1f} counted by the server"
            + (f": {added} more in each, as of a chat template" if added else "")
        )
    if prompts["cached_share"] is not None:
        yield f"Prompts: {prompts['cached_share']:.1%} of their tokens came out of the prefix cache"
    counted = ", ".join(f"{name} ({count})" for name, count in outputs["counted_by"].items())
    if counted:
        yield f"Tokens counted by: {counted}"


def _moment(latency_from: str) -> str:
    return "intended send time" if latency_from == INTENDED else "actual send time"


def _values(name: str, values: Mapping[str, Any], percentiles: Sequence[float]) -> str:
    keys = [
        ("mean", "mean"),
        ("median", "median"),
        *((f"p{percent:g}", f"P{percent:g}") for percent in percentiles),
    ]
    listed = (f"{shown} {_text(values[f'{key}_{name}_ms'], 2)}" for key, shown in keys)
    return f"{name.upper().replace('_', ' ')} (ms): " + ", ".join(listed)


def _row(title: str, value: float | None, digits: int | None = None) -> str:
    return f"{title:<40} {_text(value, digits):<10}"


def _text(value: float | None, digits: int | None) -> str:
    if value is None:
        return NOT_THERE
    return str(value) if digits is None else f"{value:.{digits}f}"
