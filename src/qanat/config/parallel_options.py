"""Flags about several ranks that compute one model."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class ParallelOptions:
    """Parallelism."""

    tensor_parallel_size: int = option(
        Kind.COUNT,
        1,
        "Ranks that share every layer, on this host; each but the first is a process of its own. More than the machine "
        "or the model allows become as many as they do.",
        aliases=("-tp",),
        minimum=1,
    )
    pipeline_parallel_size: int = option(
        Kind.COUNT, 1, "Stages of layers; runs as 1 in this version.", aliases=("-pp",), minimum=1
    )
    data_parallel_size: int = option(
        Kind.COUNT, 1, "Copies of the model; runs as 1 in this version.", aliases=("-dp",), minimum=1
    )
    enable_expert_parallel: bool = option(
        Kind.SWITCH,
        False,
        "Spread experts over ranks; in this version each rank holds a part of every expert.",
        aliases=("-ep",),
    )
    distributed_executor_backend: str | None = option(
        Kind.TEXT,
        None,
        "How ranks run: uni is this process, for one rank; mp is one process per rank, also used for vLLM's ray and "
        "external_launcher. Default: by the number of ranks.",
        choices=("uni", "mp", "ray", "external_launcher"),
    )
