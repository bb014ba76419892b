"""Node 0's line to another host of the group, with the ranks that live there."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

from qanat.core.errors import EngineDeadError
from qanat.executor.node_line import BEAT_S, LineLostError, NodeLine
from qanat.executor.node_messages import (
    Batch,
    Beat,
    Farewell,
    ForRank,
    NodeReport,
    NodeStart,
    OfRank,
    RankEnded,
)
from qanat.executor.peers import Peer


class NodeLink:
    """A line with a thread that reads it and one that keeps it alive: a step may take longer than silence may.

    Args:
        line: greeted.
        report: of the other host.
        ranks: those that live there.

    Attributes:
        report: see above.
        peers: the ranks, each with a line of its own.
        on_loss: called from another thread when the host is gone.
    """

    def __init__(self, line: NodeLine, report: NodeReport, ranks: Sequence[int]) -> None:
        self.report = report
        self.on_loss: Callable[[], None] | None = None
        self._line = line
        self._ends: dict[int, str] = {}
        self._entries: dict[int, socket.socket] = {}
        self._is_closed = threading.Event()
        self._loss = ""
        self.peers = [self._peer(rank) for rank in ranks]
        threading.Thread(target=self._read, name="node-line", daemon=True).start()
        threading.Thread(target=self._beat, name="node-beat", daemon=True).start()

    @property
    def name(self) -> str:
        """For messages."""
        return f"node {self.report.node_rank} ({self.report.host} at {self.report.address})"

    @property
    def is_lost(self) -> bool:
        """True once the host is gone."""
        return bool(self._loss)

    def start(self, message: NodeStart) -> None:
        """Has the ranks started.

        Raises:
            EngineDeadError: the host is gone.
        """
        try:
            self._line.send(message)
        except LineLostError as error:
            raise self._death(error) from None

    def send_batch(self, payload: bytes) -> None:
        """Gives all ranks there a batch.

        Raises:
            EngineDeadError: the host is gone.
        """
        try:
            self._line.send(Batch(payload))
        except LineLostError as error:
            raise self._death(error) from None

    def close(self, words: str = "") -> None:
        """Says farewell and hangs up. Harmless when repeated.

        Args:
            words: why the group ends, if it is by a fault.
        """
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        with contextlib.suppress(LineLostError):
            if not self._loss:
                self._line.send(Farewell(words))
        self._line.close()
        for peer in self.peers:
            peer.line.close()

    def _peer(self, rank: int) -> Peer:
        own, entry = socket.socketpair()
        self._entries[rank] = entry
        return Peer(
            rank,
            f"Rank {rank} (node {self.report.node_rank}, {self.report.host} at {self.report.address})",
            own,
            lambda frame: self._line.send(ForRank(rank, frame)),
            lambda: self._ends.get(rank) or f"is gone: {self.name} {self._loss or 'hung up'}",
        )

    def _death(self, error: LineLostError) -> EngineDeadError:
        """The first rank that has ended there explains it, if it is known by now."""
        name = self.name[0].upper() + self.name[1:]
        return EngineDeadError(f"{name} {self._loss or error}; its own log may say why.")

    def _read(self) -> None:
        try:
            while True:
                message = self._line.receive()
                if isinstance(message, OfRank) and message.rank in self._entries:
                    self._entries[message.rank].sendall(message.frame)
                elif isinstance(message, RankEnded) and message.rank in self._entries:
                    self._ends[message.rank] = message.words
                    self._entries[message.rank].close()
                elif isinstance(message, Farewell):
                    raise LineLostError(message.words)
        except OSError as error:
            if not self._is_closed.is_set():
                self._lose(str(error))
        for entry in self._entries.values():
            entry.close()

    def _lose(self, loss: str) -> None:
        self._loss = loss
        for entry in self._entries.values():
            entry.close()
        if self.on_loss is not None:
            self.on_loss()

    def _beat(self) -> None:
        with contextlib.suppress(LineLostError):
            while not self._is_closed.wait(BEAT_S) and not self._loss:
                self._line.send(Beat())


@contextlib.contextmanager
def closed_on_failure(links: Sequence[NodeLink]) -> Iterator[None]:
    """Tells the other hosts why there will be no group if what is done meanwhile fails."""
    try:
        yield
    except BaseException as error:
        for link in links:
            link.close(str(error) or "node 0 was stopped")
        raise
