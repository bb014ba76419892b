"""Node 0 at the start of a group of several hosts: who comes, whether it may, and who is missing."""

from __future__ import annotations

import ipaddress
import logging
import queue
import socket
import threading
import time

from qanat.config.cluster_key import cluster_secret
from qanat.config.resolved import ResolvedConfig
from qanat.core.addresses import resolved
from qanat.core.comparing import differences
from qanat.core.errors import ConfigError, EngineDeadError
from qanat.executor.node_line import KEY_PURPOSE, LineLostError, NodeLine, RefusedError
from qanat.executor.node_link import NodeLink
from qanat.executor.node_messages import Farewell, NodeReport
from qanat.executor.reports import traits_of, versions

logger = logging.getLogger(__name__)

POLL_S = 0.2
BACKLOG = 32
MAX_GREETINGS = 32
"""So many that have connected are heard at once; more wait, so that strangers cost little."""


class Gathering:
    """Listens for the other hosts until all are there.

    Args:
        config: the resolved configuration.
        deadline_s: monotonic time by which all must have come.

    Raises:
        ConfigError: the port cannot be had, or the cluster's key is too short.
        EngineDeadError: a host did not come, or would not compute the same; names it.
    """

    def __init__(self, config: ResolvedConfig, deadline_s: float) -> None:
        self._config, self._nodes, self._deadline_s = config, config.parallel, deadline_s
        self._key = cluster_secret(KEY_PURPOSE)
        self._versions, self._traits = versions(), traits_of(config)
        self._arrivals: queue.Queue[tuple[NodeLine, NodeReport]] = queue.Queue()
        self._greetings = threading.Semaphore(MAX_GREETINGS)
        self._links: dict[int, NodeLink] = {}
        self._hint = ""

    def run(self) -> list[NodeLink]:
        """Returns the lines to all other hosts, in order."""
        with _listener(self._nodes.master_addr, self._nodes.master_port) as listener:
            logger.info(
                "Waiting for %d other hosts at %s:%d",
                self._nodes.num_nodes - 1,
                *listener.getsockname()[:2],
            )
            self._hint = _loopback_hint(self._nodes.master_addr, listener.getsockname()[0])
            if self._hint:
                logger.warning("%s", self._hint)
            try:
                while missing := self._missing():
                    if time.monotonic() > self._deadline_s:
                        names = " and ".join(f"node {rank}" for rank in missing)
                        raise EngineDeadError(
                            f"{names[0].upper()}{names[1:]} did not report to {self._nodes.master_addr}:"
                            f"{self._nodes.master_port} in time (60 s, or half of --init-timeout-s). "
                            "Start each host with its --node-rank, and look whether it can reach this address."
                            f"{self._hint and ' ' + self._hint}"
                        )
                    self._accept(listener)
                    self._take_arrivals()
            except BaseException as error:
                self.end(error.message if isinstance(error, EngineDeadError) else "node 0 was stopped")
                raise
        return [self._links[rank] for rank in sorted(self._links)]

    def end(self, words: str) -> None:
        """Tells all that have come that there will be no group."""
        for link in self._links.values():
            link.close(words)

    def _missing(self) -> list[int]:
        for rank, link in list(self._links.items()):
            if link.is_lost:
                logger.warning("%s is gone again; waiting for it", link.name)
                link.close()
                del self._links[rank]
        return [rank for rank in range(1, self._nodes.num_nodes) if rank not in self._links]

    def _accept(self, listener: socket.socket) -> None:
        if not self._greetings.acquire(timeout=POLL_S):
            return
        try:
            connection, address = listener.accept()
        except TimeoutError:
            self._greetings.release()
            return
        threading.Thread(target=self._greet, args=(connection, address[0]), daemon=True).start()

    def _greet(self, connection: socket.socket, address: str) -> None:
        """In a thread of its own, so that one that connects and says nothing holds nobody up."""
        line = NodeLine(connection)
        try:
            line.greet(self._key)
            report = line.receive()
            if not isinstance(report, NodeReport):
                raise LineLostError("says what is no report")
            line.admit()
            self._arrivals.put((line, report))
        except (LineLostError, RefusedError) as error:
            logger.warning("A connection from %s was refused: it %s", address, error)
            line.close()
        finally:
            self._greetings.release()

    def _take_arrivals(self) -> None:
        while not self._arrivals.empty():
            line, report = self._arrivals.get()
            name = f"Node {report.node_rank} (process {report.pid} on {report.host} at {report.address})"
            present = self._links.get(report.node_rank)
            if present is not None:
                words = f"there is a node {report.node_rank} already, {present.report.host}"
                logger.warning("%s was refused: %s", name, words)
                _refuse(line, f"{words}; give each host its own --node-rank.")
                continue
            self._check(line, name, report)
            logger.info(
                "%s: interface %s, %s",
                name,
                report.interface,
                ", ".join(map(" ".join, report.versions.items())),
            )
            size = self._config.tensor_parallel_size // self._nodes.num_nodes
            first = report.node_rank * size
            self._links[report.node_rank] = NodeLink(line, report, range(first, first + size))

    def _check(self, line: NodeLine, name: str, report: NodeReport) -> None:
        different = differences(self._versions, report.versions) + differences(self._traits, report.traits)
        if report.num_nodes != self._nodes.num_nodes:
            different.insert(0, f"--nnodes {report.num_nodes} instead of {self._nodes.num_nodes}")
        if different:
            words = (
                f"{name} does not match node 0: it has {', '.join(different)}. Give all hosts the same versions, "
                "weights and flags."
            )
            _refuse(line, words)
            raise EngineDeadError(words)


def gather(config: ResolvedConfig, deadline_s: float) -> list[NodeLink]:
    """Lines to the other hosts of the group; none on one host. See `Gathering`."""
    return Gathering(config, deadline_s).run() if config.parallel.num_nodes > 1 else []


def _refuse(line: NodeLine, words: str) -> None:
    try:
        line.send(Farewell(words))
    except LineLostError:
        pass
    line.close()


def _loopback_hint(name: str, address: str) -> str:
    """What to say of an address that only this host's own processes reach; nothing of others."""
    if not ipaddress.ip_address(address).is_loopback:
        return ""
    stands_for = "is" if name == address else f"stands for {address} here,"
    return (
        f"--master-addr {name} {stands_for} a loopback address, which no other host reaches; give the address of an "
        "interface of this host unless all of them run on it."
    )


def _listener(address: str, port: int) -> socket.socket:
    try:
        own = resolved(address)
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        listener = socket.create_server((own, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"Node 0 cannot listen at --master-addr {address} --master-port {port}: {error.strerror or error}. The "
            "address must be one of this host's; the port must be free.",
            param="--master-addr",
        ) from None
    listener.settimeout(POLL_S)
    return listener
