"""One more host of a tensor-parallel group of the tiny model: `python -m tests.executor.tiny_node SETTINGS`, JSON."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from qanat.config.parallel_settings import ParallelSettings
from qanat.config.resolved import ResolvedConfig
from qanat.core.log_lines import write_log
from tests.support.server_process import free_port
from tests.worker.tiny_model import tiny_config

Start = Callable[..., "subprocess.Popen[str]"]


def node_config(rank: int, address: str, port: int, *, count: int = 2, **changes: Any) -> ResolvedConfig:
    """The configuration of one host of so many; `changes` override single fields."""
    place = ParallelSettings(num_nodes=count, node_rank=rank, master_addr=address, master_port=port)
    return dataclasses.replace(tiny_config(), **({"tensor_parallel_size": 2, "parallel": place} | changes))


class TinyNodes:
    """Other hosts' processes; ended with the `with` block.

    Args:
        address: of host 0.
        start: runs a command, such as `Host.start` of a namespace; None runs it here.
    """

    def __init__(self, address: str = "127.0.0.1", start: Start | None = None) -> None:
        self.address, self.port = address, free_port()
        self._start: Start = start or subprocess.Popen
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> TinyNodes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def config(self, rank: int = 0, **changes: Any) -> ResolvedConfig:
        """Of one of the hosts."""
        return node_config(rank, self.address, self.port, **changes)

    def start(self, rank: int = 1, **changes: Any) -> subprocess.Popen[str]:
        """Starts a host; what it logs can be read from its `stdout`."""
        settings = {"rank": rank, "address": self.address, "port": self.port, **changes}
        command: Sequence[str] = [sys.executable, "-m", "tests.executor.tiny_node", json.dumps(settings)]
        process = self._start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._processes.append(process)
        return process


if __name__ == "__main__":
    from qanat.executor.node_process import run_node

    write_log("text", "INFO")
    sys.exit(run_node(node_config(**json.loads(sys.argv[1]))))
