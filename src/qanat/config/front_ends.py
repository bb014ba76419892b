"""Where several processes can serve clients."""

from __future__ import annotations

from qanat.config.engine_config import EngineConfig
from qanat.config.parallel_settings import ParallelSettings
from qanat.core.errors import ConfigError

FLAG = "--api-server-count"


def check_front_ends(wishes: EngineConfig, settings: ParallelSettings) -> None:
    """Refuses several front ends where there is nothing for them to do or to reach.

    Args:
        wishes: what was asked for.
        settings: hosts and replicas, settled.

    Raises:
        ConfigError: this host serves nobody, or replicas of other hosts too.
    """
    if wishes.api_server_count is None:
        return
    if wishes.headless or wishes.node_rank:
        flag = "--headless" if wishes.headless else f"--node-rank {wishes.node_rank}"
        raise ConfigError(
            f"{FLAG} {wishes.api_server_count} cannot stand beside {flag}: this host serves no clients. Give it to "
            "the host that does.",
            param=FLAG,
        )
    if wishes.api_server_count > 1 and settings.has_remote_replicas:
        raise ConfigError(
            f"{FLAG} {wishes.api_server_count} needs all replicas on this host: front ends reach cores over sockets "
            f"of this host only. Serve replicas of other hosts with {FLAG} 1, or let each host serve its own "
            "(--data-parallel-hybrid-lb) behind qanat router.",
            param=FLAG,
        )
