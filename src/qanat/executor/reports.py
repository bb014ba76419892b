"""What a rank says of itself at the start, and the comparison with rank 0."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.config.weight_digest import weight_digest
from qanat.core.addresses import interface_of
from qanat.core.comparing import differences, python_version
from qanat.core.errors import EngineDeadError
from qanat.executor.rank_messages import RankReport

JOIN_TIMEOUT_S = 60.0
OWN_AFFAIRS = (
    "model_path",
    "served_model_names",
    "num_threads",
    "init_timeout_s",
    "step_timeout_s",
    "max_logprobs",
    "num_valid_token_ids",
    "open_limits",
    "profiler",
    "structured",
    "parallel",
    "packed_cache",
    "cpu_binding",
)
"""Settings that a host may have for itself, that concern rank 0 alone, or that are told at the start."""
OWN_LIMITS = (
    "scheduler.policy",
    "scheduler.max_waiting_requests",
    "scheduler.max_waiting_tokens",
    "scheduler.max_queue_wait_s",
    "scheduler.max_decode_stall_s",
    "scheduler.long_prefill_token_threshold",
    "scheduler.is_chunked_prefill_enabled",
    "cache.memory_share",
    "cache.available_bytes",
    "prefix_cache.folder",
    "prefix_cache.folder_bytes",
)
"""The same among the limits: who waits, who is next and how much memory is taken is settled by rank 0."""


def join_timeout_s(config: ResolvedConfig) -> float:
    """Within so many seconds every host and rank must have reported, and all ranks must be connected.

    At most half of --init-timeout-s: whoever waits for the whole start gives up then, and would know less of the cause.
    """
    return min(JOIN_TIMEOUT_S, config.init_timeout_s / 2)


def versions() -> dict[str, str]:
    """Of what must be equal on all ranks."""
    import torch

    from qanat import __version__

    return {"qanat": __version__, "python": python_version(), "torch": str(torch.__version__)}


def traits_of(config: ResolvedConfig) -> dict[str, str]:
    """Every setting that decides about answers, by name, and the digest of the weights.

    Raises:
        OSError: a weight file cannot be read.
    """
    settings = msgspec.to_builtins(config)
    compared = {name: value for name, value in settings.items() if name not in OWN_AFFAIRS}
    traits = {name: value for name, value in _flat("", compared) if name not in OWN_LIMITS}
    if config.load_format != "dummy":
        traits["weights"] = weight_digest(Path(config.model_path))
    return traits


def digest_of(traits: dict[str, str]) -> str:
    """SHA-256 of traits."""
    return hashlib.sha256(msgspec.msgpack.encode(sorted(traits.items()))).hexdigest()


def report_of(rank: int, config: ResolvedConfig, address: str, available_bytes: int) -> RankReport:
    """This process's own report.

    Raises:
        OSError: a weight file cannot be read.
    """
    return RankReport(
        rank=rank,
        pid=os.getpid(),
        host=socket.gethostname(),
        interface=interface_of(address),
        address=address,
        versions=versions(),
        config_digest=digest_of(traits_of(config)),
        available_bytes=available_bytes,
    )


def check_report(own: RankReport, other: RankReport) -> None:
    """Compares another rank's report with that of rank 0.

    Raises:
        EngineDeadError: they would not compute the same; names what differs.
    """
    different = differences(own.versions, other.versions)
    if other.config_digest != own.config_digest:
        different.append(f"configuration {other.config_digest[:12]} instead of {own.config_digest[:12]}")
    if different:
        raise EngineDeadError(
            f"Rank {other.rank} (process {other.pid} on {other.host}) does not match rank 0: it has "
            f"{', '.join(different)}. Install the same versions everywhere and start again."
        )


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield prefix, str(value)
        return
    for name, inner in value.items():
        yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
