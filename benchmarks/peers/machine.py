"""The limit beside each rate: what the machine's own read and multiply-add rates allow for that engine's format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.workloads import DECODE, Peer, Workload
from qanat.core.samples import Samples
from qanat.kernels.native.limits import INT8, Limits, measure_limits


@dataclass(frozen=True)
class Shape:
    """What a model's steps cost on any engine, beside the bytes of its weights.

    Attributes:
        state_bytes: of one sequence's recurrent state.
        kv_bytes_per_token: in bf16.
        prefill_macs: multiply-adds of a prompt of 512 tokens.
    """

    state_bytes: float
    kv_bytes_per_token: float
    prefill_macs: float

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Shape:
        """From what a Qanat worker says of itself."""
        return cls(facts["state_bytes"], facts["kv_bytes_per_token"], facts["prefill_macs"])


def limit_of(peer: Peer, workload: Workload, shape: Shape, limits: Limits) -> tuple[float, str]:
    """(tokens per second at most, what binds); infinite where no limit of this kind is measured."""
    read = limits.read_bytes_per_s.median
    if workload.phase == DECODE:
        context_len = workload.input_len + workload.output_len / 2
        own_bytes = 2 * shape.state_bytes + context_len * shape.kv_bytes_per_token
        seconds = (peer.weight_bytes + workload.batch_size * own_bytes) / read
        return workload.batch_size / seconds, "read bandwidth"
    if not peer.is_integer:
        return math.inf, ""
    macs = shape.prefill_macs * workload.input_len / 512
    return workload.input_len / (macs / limits.best_rate(INT8)), "int8 multiply-adds"


def joined_limits(measured: Sequence[Limits]) -> Limits:
    """Those of all rounds as one."""
    first, *others = measured
    for later in others:
        first = first.joined(later)
    return first


def measured(num_threads: int, size_bytes: int) -> Limits:
    """The limits now, with so many threads."""
    from qanat.kernels.native.module import configure

    configure(num_threads)
    limits = measure_limits(size_bytes, num_repeats=3)
    configure(1)
    return limits


def limits_lines(limits: Limits) -> list[str]:
    """The limits as a Markdown table."""

    def row(name: str, unit: str, samples: Samples) -> str:
        return f"| {name} | {samples.median / 1e9:,.1f} {unit} | {samples.spread:.0%} |"

    rows = [row("memory read", "GB/s", limits.read_bytes_per_s)]
    for (name, operands), samples in limits.macs_per_s.items():
        rows.append(row(f"{operands} multiply-adds, {name}", "G/s", samples))
    return [f"| limit, {limits.num_threads} threads | median | spread |", "| --- | ---: | ---: |", *rows]
