"""The hosts of one tensor-parallel group: flags about them that contradict each other are refused."""

from __future__ import annotations

from qanat.config.engine_config import EngineConfig
from qanat.core.errors import ConfigError

FLAG = "--nnodes"


def check_nodes(wishes: EngineConfig) -> None:
    """Checks the flags about hosts whose ranks share every layer.

    Raises:
        ConfigError: what to change.
    """
    count, rank = wishes.nnodes, wishes.node_rank
    if rank >= count:
        raise ConfigError(
            f"--node-rank {rank} needs {FLAG} of at least {rank + 1}: hosts are numbered from 0 to {FLAG} - 1.",
            param="--node-rank",
        )
    if count == 1:
        return
    if wishes.data_parallel_size > 1:
        raise ConfigError(
            f"{FLAG} {count} spreads the ranks of one replica over hosts, and cannot stand beside "
            f"--data-parallel-size {wishes.data_parallel_size}. To spread replicas over hosts, leave {FLAG} out and "
            "give --data-parallel-address with --data-parallel-size-local.",
            param=FLAG,
        )
    if wishes.headless and rank == 0:
        raise ConfigError(
            f"Host 0 of {FLAG} {count} serves: leave --headless out, or give --node-rank.", param="--headless"
        )
    if wishes.tensor_parallel_size % count:
        raise ConfigError(
            f"{FLAG} {count} hosts cannot have equal numbers of --tensor-parallel-size {wishes.tensor_parallel_size} "
            f"ranks: give a size that {count} divides.",
            param=FLAG,
        )
