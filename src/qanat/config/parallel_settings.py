"""Which replicas, hosts and front ends there are, and which of them are this process's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ParallelSettings:
    """Settled by `qanat.config.replicas`.

    Attributes:
        data_parallel_size: replicas of the model on all hosts.
        num_local_replicas: those that this host runs.
        start_rank: number of the first of them.
        address: of the host that serves, for replicas of other hosts.
        rpc_port: port for that.
        is_headless: this host computes and serves nobody.
        is_balanced_outside: a load balancer in front chooses among hosts; this one serves its own replicas only.
        num_front_ends: processes that serve clients.
        num_nodes: hosts whose ranks share every layer.
        node_rank: number of this host among them.
        master_addr: address of host 0 of them.
        master_port: port there.
    """

    data_parallel_size: int = 1
    num_local_replicas: int = 1
    start_rank: int = 0
    address: str = "127.0.0.1"
    rpc_port: int = 29550
    is_headless: bool = False
    is_balanced_outside: bool = False
    num_front_ends: int = 1
    num_nodes: int = 1
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 29501

    @property
    def local_ranks(self) -> range:
        """Numbers of the replicas that this host runs."""
        return range(self.start_rank, self.start_rank + self.num_local_replicas)

    @property
    def served_ranks(self) -> range:
        """Numbers of the replicas that clients of this host reach: none, its own or all."""
        if self.is_headless:
            return range(0)
        return self.local_ranks if self.is_balanced_outside else range(self.data_parallel_size)

    @property
    def has_remote_replicas(self) -> bool:
        """True if this host serves replicas that other hosts run."""
        return len(self.served_ranks) > self.num_local_replicas
