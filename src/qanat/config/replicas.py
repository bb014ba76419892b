"""How many replicas there are and which of them run here: what was wished, within what this machine allows."""

from __future__ import annotations

from qanat.config.cluster_key import cluster_secret, missing_key_decision
from qanat.config.engine_config import EngineConfig
from qanat.config.front_ends import check_front_ends
from qanat.config.machine import MachineInfo
from qanat.config.parallel_settings import ParallelSettings
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

SIZE_FLAG = "--data-parallel-size"
LOCAL_FLAG = "--data-parallel-size-local"
START_FLAG = "--data-parallel-start-rank"
RANK_FLAG = "--data-parallel-rank"
EXTERNAL_FLAG = "--data-parallel-external-lb"
HYBRID_FLAG = "--data-parallel-hybrid-lb"

DEFAULT_ADDRESS = "127.0.0.1"
DEFAULT_RPC_PORT = 29550

CORE_PROCESS_BYTES = 160 * 2**20
"""What a replica's process takes before it loads anything: Python and torch (150 MiB were measured)."""


def parallel_settings(
    wishes: EngineConfig, machine: MachineInfo, num_ranks: int, said: list[Decision]
) -> ParallelSettings:
    """Replicas, hosts and front ends.

    On one host, more replicas than it has cores for become as many as it has. Several hosts must agree on the numbers,
    so there nothing is lowered: what a host cannot do is refused.

    Args:
        wishes: what was asked for.
        machine: this host.
        num_ranks: tensor-parallel ranks of each replica on this host.
        said: decisions are added here.

    Raises:
        ConfigError: numbers that contradict each other or do not fit this host.
    """
    if wishes.data_parallel_backend != "mp":
        why = "replicas are processes of their own"
        said.append(Decision("--data-parallel-backend", wishes.data_parallel_backend, "mp", why))
    is_outside = _is_balanced_outside(wishes, said)
    size, local, start = _numbers(wishes, is_outside=is_outside)
    if local == size and not wishes.headless:
        size = local = _lowered(size, num_ranks, machine, said)
    elif local > 1 and local * num_ranks > machine.num_cores:
        raise ConfigError(
            f"{LOCAL_FLAG} {local}: {local} replicas of {num_ranks} ranks need {local * num_ranks} cores, and this "
            f"host has {machine.num_cores} for them. Run fewer here and more on other hosts.",
            param=LOCAL_FLAG,
        )
    settings = ParallelSettings(
        data_parallel_size=size,
        num_local_replicas=local,
        start_rank=start,
        address=wishes.data_parallel_address or DEFAULT_ADDRESS,
        rpc_port=wishes.data_parallel_rpc_port or DEFAULT_RPC_PORT,
        is_headless=wishes.headless,
        is_balanced_outside=is_outside,
        num_front_ends=wishes.api_server_count or 1,
        num_nodes=wishes.nnodes,
        node_rank=wishes.node_rank,
        master_addr=wishes.master_addr,
        master_port=wishes.master_port,
    )
    check_front_ends(wishes, settings)
    _name_what_is_unused_or_open(wishes, settings, said)
    return settings


def replica_bytes(available_bytes: int, num_replicas: int) -> int:
    """Memory that each of several replicas of one host can have once their processes run."""
    return max(0, available_bytes // num_replicas - CORE_PROCESS_BYTES)


def _is_balanced_outside(wishes: EngineConfig, said: list[Decision]) -> bool:
    if wishes.data_parallel_external_lb and wishes.data_parallel_rank is None:
        raise ConfigError(
            f"{EXTERNAL_FLAG} needs {RANK_FLAG}: which replica this server is.", param=EXTERNAL_FLAG
        )
    if wishes.data_parallel_hybrid_lb and wishes.data_parallel_rank is not None:
        raise ConfigError(
            f"{HYBRID_FLAG} serves all replicas of this host, {RANK_FLAG} one: leave one of them out.",
            param=RANK_FLAG,
        )
    if wishes.data_parallel_hybrid_lb and wishes.data_parallel_size_local is None:
        raise ConfigError(
            f"{HYBRID_FLAG} needs {LOCAL_FLAG}: how many replicas this host runs.", param=HYBRID_FLAG
        )
    outside = [
        flag
        for flag, is_set in (
            (RANK_FLAG, wishes.data_parallel_rank is not None),
            (EXTERNAL_FLAG, wishes.data_parallel_external_lb),
            (HYBRID_FLAG, wishes.data_parallel_hybrid_lb),
        )
        if is_set
    ]
    if wishes.headless and outside:
        raise ConfigError(
            f"{outside[0]} serves, and --headless does not: leave one of them out.", param=outside[0]
        )
    if wishes.data_parallel_start_rank and not wishes.headless and not outside:
        why = "a host whose first replica is not 0 serves its own replicas, unless it is --headless"
        said.append(Decision(HYBRID_FLAG, None, True, why))
        return True
    return bool(outside) and wishes.data_parallel_size > 1


def _numbers(wishes: EngineConfig, *, is_outside: bool) -> tuple[int, int, int]:
    """All replicas, those of this host, and the first of these."""
    size, rank = wishes.data_parallel_size, wishes.data_parallel_rank
    start = wishes.data_parallel_start_rank or 0
    if rank is not None:
        if rank >= size:
            raise ConfigError(
                f"{RANK_FLAG} {rank}: with {SIZE_FLAG} {size} the last replica is {size - 1}.",
                param=RANK_FLAG,
            )
        if wishes.data_parallel_size_local not in (None, 1) or start not in (0, rank):
            other = START_FLAG if start not in (0, rank) else LOCAL_FLAG
            raise ConfigError(
                f"{RANK_FLAG} {rank} is one replica and says which: leave {other} out.", param=other
            )
        return size, 1, rank
    local = wishes.data_parallel_size_local
    if local is None:
        local = max(1, size - start)
    if start + local > size:
        raise ConfigError(
            f"{SIZE_FLAG} {size}: this host's replicas, {local} from number {start} on, go beyond it. Raise it, or "
            f"lower {LOCAL_FLAG} or {START_FLAG}.",
            param=SIZE_FLAG,
        )
    if local == 0 and (wishes.headless or is_outside):
        raise ConfigError(
            f"{LOCAL_FLAG} 0 is for a host that serves replicas of others; this one has nothing to do.",
            param=LOCAL_FLAG,
        )
    return size, local, start


def _lowered(size: int, num_ranks: int, machine: MachineInfo, said: list[Decision]) -> int:
    most = max(1, machine.num_cores // num_ranks)
    if size <= most:
        return size
    why = f"this process may use {machine.num_cores} cores, and more replicas would wait for each other"
    if num_ranks > 1:
        why = f"this process may use {machine.num_cores} cores, and each replica has {num_ranks} ranks"
    said.append(Decision(SIZE_FLAG, size, most, why))
    return most


def _name_what_is_unused_or_open(
    wishes: EngineConfig, settings: ParallelSettings, said: list[Decision]
) -> None:
    if settings.has_remote_replicas or settings.is_headless:
        missing = missing_key_decision(settings.address) if settings.num_nodes == 1 else None
        if missing is not None and cluster_secret("") is None:
            said.append(missing)
        return
    for flag, value in (
        ("--data-parallel-address", wishes.data_parallel_address),
        ("--data-parallel-rpc-port", wishes.data_parallel_rpc_port),
    ):
        if value is not None:
            said.append(Decision(flag, value, "no effect", "no replica of another host reports here"))
