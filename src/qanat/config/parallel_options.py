"""Flags about several processes that compute and serve one model."""

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
        "Ranks that share every layer, on this host or on all of --nnodes; each but the first is a process of its own. "
        "On one host, more than the machine or the model allows become as many as they do.",
        aliases=("-tp",),
        minimum=1,
    )
    pipeline_parallel_size: int = option(
        Kind.COUNT, 1, "Stages of layers; runs as 1 in this version.", aliases=("-pp",), minimum=1
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


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """Data parallelism: several engines behind one address."""

    data_parallel_size: int = option(
        Kind.COUNT,
        1,
        "Replicas: engines with the whole model, each with its own cache; a request goes to the one with the least "
        "work. On one host, more than its cores allow become as many as they do.",
        aliases=("-dp",),
        minimum=1,
    )
    data_parallel_size_local: int | None = option(
        Kind.COUNT,
        None,
        "Replicas that this host runs; other hosts run the others. Default: all.",
        aliases=("-dpl",),
        minimum=0,
    )
    data_parallel_start_rank: int | None = option(
        Kind.COUNT,
        None,
        "Number of this host's first replica. Default: 0.",
        aliases=("-dpr",),
        minimum=0,
    )
    data_parallel_rank: int | None = option(
        Kind.COUNT,
        None,
        "Serve this replica alone, behind a load balancer of your own that knows the others.",
        aliases=("-dpn",),
        minimum=0,
    )
    data_parallel_address: str | None = option(
        Kind.TEXT,
        None,
        "Address of the host that serves; replicas of other hosts report there. Default: 127.0.0.1.",
        aliases=("-dpa",),
    )
    data_parallel_rpc_port: int | None = option(
        Kind.COUNT,
        None,
        "Port for their reports. Default: 29550.",
        aliases=("-dpp",),
        minimum=1,
        maximum=65535,
    )
    data_parallel_backend: str = option(
        Kind.TEXT,
        "mp",
        "How replicas run; always as processes of their own, also for vLLM's ray.",
        aliases=("-dpb",),
        choices=("mp", "ray"),
    )
    data_parallel_external_lb: bool = option(
        Kind.SWITCH,
        False,
        "A load balancer of your own chooses among all replicas; needs --data-parallel-rank.",
        aliases=("-dpe",),
    )
    data_parallel_hybrid_lb: bool = option(
        Kind.SWITCH,
        False,
        "A load balancer of your own chooses among hosts; this server among the replicas of its host.",
        aliases=("-dph",),
    )


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """Several hosts and front ends."""

    headless: bool = option(
        Kind.SWITCH,
        False,
        "Only compute: this host's part reports to the host that serves, and no port is opened for clients.",
    )
    api_server_count: int | None = option(
        Kind.COUNT,
        None,
        "Processes that serve clients on the one port. Default: 1.",
        aliases=("-asc",),
        minimum=1,
    )
    nnodes: int = option(
        Kind.COUNT,
        1,
        "Hosts whose ranks share every layer.",
        aliases=("-n",),
        minimum=1,
    )
    node_rank: int = option(
        Kind.COUNT,
        0,
        "Number of this host among them; 0 serves.",
        aliases=("-r",),
        minimum=0,
    )
    master_addr: str = option(
        Kind.TEXT,
        "127.0.0.1",
        "Address of host 0, where the ranks of the others report.",
    )
    master_port: int = option(
        Kind.COUNT,
        29501,
        "Port for their reports.",
        minimum=1,
        maximum=65535,
    )
