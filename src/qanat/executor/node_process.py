"""A host of the group other than the first: its ranks, and the line to node 0 that they are reached by."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import select
import socket
import time
from collections.abc import Iterator

from qanat.config.cluster_key import cluster_secret
from qanat.config.resolved import ResolvedConfig
from qanat.core.addresses import address_towards, interface_of, resolved
from qanat.core.errors import EngineDeadError
from qanat.core.log_lines import present_format
from qanat.executor.node_line import (
    BEAT_S,
    KEY_PURPOSE,
    SILENCE_S,
    LineLostError,
    NodeLine,
    RefusedError,
    group_secret,
)
from qanat.executor.node_messages import (
    Batch,
    Beat,
    Farewell,
    ForRank,
    NodeMessage,
    NodeReport,
    NodeStart,
    OfRank,
    RankEnded,
)
from qanat.executor.peers import Peer, readable
from qanat.executor.rank_messages import RankStart
from qanat.executor.rank_processes import RankProcesses
from qanat.executor.reports import join_timeout_s, traits_of, versions
from qanat.executor.ring import FULL_RING_PAUSE_S
from qanat.executor.stop_signal import StoppedError, StopSignal
from qanat.platforms.cpu import CpuPlatform

logger = logging.getLogger(__name__)

RETRY_S = 0.5
POLL_S = 0.5
FAREWELL_S = 10.0
"""After a rank of this host has ended, node 0 has so long to end the group."""


class GroupEndedError(Exception):
    """Node 0 has ended the group; the text says why, and is empty if that is no fault."""


class Node:
    """Passes on what node 0 and the ranks of this host say to each other.

    Args:
        config: the resolved configuration, as this host understands it.
        line: to node 0, greeted.
        address: of this host's interface.
        stop: what breaks it off, but no message to node 0.
    """

    def __init__(self, config: ResolvedConfig, line: NodeLine, address: str, stop: StopSignal) -> None:
        self._stop = stop
        self._config, self._line, self._address = config, line, address
        self._processes: RankProcesses | None = None
        self._ended: set[int] = set()
        self._farewell_by_s: float | None = None
        self._said_s = self._heard_s = time.monotonic()

    def run(self) -> None:
        """Serves the group until it ends.

        Raises:
            GroupEndedError: node 0 said so.
            LineLostError: node 0 is gone.
        """
        while True:
            for descriptor in self._ready():
                if descriptor == self._line.fileno():
                    self._take(self._line.receive())
                    self._heard_s = time.monotonic()  # what has taken long here is no silence of node 0's
            self._show_life()
            for peer in readable(self._living(), 0):
                self._pass_on(peer)
            now_s = time.monotonic()
            if now_s - self._said_s > BEAT_S:
                self._say(Beat())
            if now_s - self._heard_s > SILENCE_S:
                raise LineLostError(f"has been silent for {SILENCE_S:.1f} s")
            if self._farewell_by_s is not None and now_s > self._farewell_by_s:
                raise GroupEndedError("a rank of this host has ended, and node 0 does not answer")

    def stop(self) -> None:
        """Ends the ranks of this host, by force if need be."""
        if self._processes is not None:
            self._processes.stop()

    def _ready(self) -> list[int]:
        poll = select.poll()
        for descriptor in (self._line.fileno(), *(peer.line.fileno() for peer in self._living())):
            poll.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in poll.poll(POLL_S * 1000)]

    def _living(self) -> list[Peer]:
        peers = self._processes.peers if self._processes is not None else []
        return [peer for peer in peers if peer.rank not in self._ended]

    def _take(self, message: NodeMessage) -> None:
        if isinstance(message, NodeStart):
            self._start(message)
        elif isinstance(message, Farewell):
            raise GroupEndedError(message.words)
        elif isinstance(message, ForRank):
            for peer in self._living():
                if peer.rank == message.rank:
                    with self._ends(peer):
                        peer.send(message.frame)
        elif isinstance(message, Batch) and self._processes is not None and not self._ended:
            # One that has ended is told to node 0 by its line, whatever becomes of this batch.
            with contextlib.suppress(EngineDeadError):
                self._processes.send(message.payload, self._wait_for_room)

    def _start(self, message: NodeStart) -> None:
        config = dataclasses.replace(
            self._config,
            scheduler=message.scheduler,
            graphs=message.graphs,
            num_valid_token_ids=message.num_valid_token_ids,
            step_timeout_s=message.step_timeout_s,
            open_limits=(),
        )
        size = config.tensor_parallel_size // config.parallel.num_nodes
        first = config.parallel.node_rank * size
        secret = group_secret(cluster_secret(KEY_PURPOSE), message.seed)
        starts = [
            RankStart(
                rank=first + i,
                reader=i,
                num_readers=size,
                config=config,
                memory_plan=message.memory_plan,
                address=self._address,
                secret=secret,
                join_timeout_s=message.join_timeout_s,
                log_level=logging.getLogger().getEffectiveLevel(),
                log_format=present_format(),
                dies_with_parent=True,
            )
            for i in range(size)
        ]
        self._processes = RankProcesses(starts)

    def _pass_on(self, peer: Peer) -> None:
        with self._ends(peer):
            self._say(OfRank(peer.rank, peer.read_frame()))

    @contextlib.contextmanager
    def _ends(self, peer: Peer) -> Iterator[None]:
        """What finds out that the rank has ended tells node 0."""
        try:
            yield
        except EngineDeadError as death:
            logger.error("%s", death.message)
            self._ended.add(peer.rank)
            self._farewell_by_s = self._farewell_by_s or time.monotonic() + FAREWELL_S
            self._say(RankEnded(peer.rank, peer.end()))

    def _wait_for_room(self) -> None:
        time.sleep(FULL_RING_PAUSE_S)
        self._show_life()
        for peer in readable(self._living(), 0):
            self._pass_on(peer)
        if self._ended:
            raise EngineDeadError("a rank of this host has ended")
        if time.monotonic() - self._said_s > BEAT_S:
            self._say(Beat())

    def _show_life(self) -> None:
        """To the ranks of this host, which end by themselves where this process stands still."""
        if self._processes is not None:
            self._processes.beat()

    def _say(self, message: NodeMessage) -> None:
        self._said_s = time.monotonic()
        with self._stop.deferred():
            self._line.send(message)


def run_node(config: ResolvedConfig) -> int:
    """Computes for node 0 until the group ends.

    Args:
        config: the resolved configuration, with this host's place.

    Returns:
        The exit code: 0 if the group was ended as it should or this process was told to stop, 1 after a fault.

    Raises:
        ConfigError: the cluster's key is too short.
    """
    place = config.parallel
    head = f"Node 0 at {place.master_addr}:{place.master_port}"
    key = cluster_secret(KEY_PURPOSE)
    line: NodeLine | None = None
    node: Node | None = None
    stop = StopSignal()
    with stop.heard():
        try:
            try:
                traits = traits_of(config)
            except OSError as error:
                logger.error("The weights cannot be read: %s", error)
                return 1
            line, address = _connected(config, key)
            line.send(_report(config, address, traits))
            logger.info(
                "Connected with node 0 at %s:%d from %s", place.master_addr, place.master_port, address
            )
            node = Node(config, line, address, stop)
            node.run()
        except StoppedError:
            if line is not None:
                with contextlib.suppress(LineLostError):
                    line.send(Farewell("was told to stop"))
            return 0
        except GroupEndedError as end:
            if not str(end):
                logger.info("Node 0 has ended the group.")
                return 0
            logger.error("The group ends: %s", end)
        except RefusedError as error:
            logger.error("%s does not take this host: %s", head, error)
        except LineLostError as error:
            logger.error("%s %s; the ranks of this host end with it.", head, error)
        except OSError as error:
            logger.error("This host cannot take part: %s", error)
        finally:
            if node is not None:
                node.stop()
            if line is not None:
                line.close()
    return 1


def _connected(config: ResolvedConfig, key: bytes | None) -> tuple[NodeLine, str]:
    """A greeted line, and this host's own address on it; tries again until node 0 is there."""
    place = config.parallel
    timeout_s = join_timeout_s(config)
    deadline_s = time.monotonic() + timeout_s
    logger.info("Waiting for node 0 at %s:%d", place.master_addr, place.master_port)
    while True:
        try:
            head = resolved(place.master_addr)
            connection = socket.create_connection(
                (head, place.master_port), timeout=max(RETRY_S, timeout_s / 10)
            )
            line = NodeLine(connection)
            line.introduce(key)
            return line, address_towards(head, place.master_port)
        except OSError as error:
            if time.monotonic() > deadline_s:
                words = f"did not answer within {timeout_s:.1f} s ({error.strerror or error})"
                raise LineLostError(words) from None
            time.sleep(RETRY_S)


def _report(config: ResolvedConfig, address: str, traits: dict[str, str]) -> NodeReport:
    return NodeReport(
        node_rank=config.parallel.node_rank,
        num_nodes=config.parallel.num_nodes,
        pid=os.getpid(),
        host=socket.gethostname(),
        interface=interface_of(address),
        address=address,
        versions=versions(),
        traits=traits,
        available_bytes=CpuPlatform().memory().available_bytes,
    )
