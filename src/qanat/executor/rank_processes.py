"""Rank 0's view of the other ranks' processes: starts them, hears them, wakes them, and notices their end."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from qanat.core.errors import EngineDeadError
from qanat.executor.rank_messages import LENGTH_BYTES, FromRank, RankFailed, RankStart
from qanat.executor.ring import Ring, anonymous_memory, ring_bytes

COMMAND = (sys.executable, "-m", "qanat.executor.rank_process")
STOP_TIMEOUT_S = 3.0
LAST_WORD_S = 2.0
"""After a step that failed, so long is waited for a rank to say, or show, that it was the one."""
FULL_RING_PAUSE_S = 0.0005

logger = logging.getLogger(__name__)


@dataclass
class Peer:
    """Another rank.

    Attributes:
        rank: its number.
        process: where it runs.
        line: socket to it.
        unread: messages that came while something else was waited for.
    """

    rank: int
    process: subprocess.Popen[bytes]
    line: socket.socket
    unread: list[FromRank] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For messages."""
        return f"Rank {self.rank} (process {self.process.pid})"

    def receive(self, timeout_s: float) -> FromRank | None:
        """Its next message; None if there is none within the time.

        Raises:
            EngineDeadError: it has ended.
        """
        if self.unread:
            return self.unread.pop(0)
        if not _readable([self], max(0.0, timeout_s)):
            return None
        return self.read()

    def read(self) -> FromRank:
        """The next message on the line, which can be read.

        Raises:
            EngineDeadError: it has ended.
        """
        size = int.from_bytes(self._read(LENGTH_BYTES), "little")
        return msgspec.msgpack.decode(self._read(size), type=FromRank)

    @property
    def has_hung_up(self) -> bool:
        """True if its line is at its end and holds no last word; to be asked of a line that can be read."""
        try:
            return not self.line.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True

    def end(self) -> str:
        """How it ended; it has closed its line."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORD_S)
        code = self.process.returncode
        if code is None:
            return "hung up"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.line.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise EngineDeadError(f"{self.name} {self.end()}; the log above may say why.")
            data += part
        return data


class RankProcesses:
    """All ranks but the first.

    Args:
        starts: what each is told, in order of rank, from 1 on.
        command: starts one; two file descriptors are added.
    """

    def __init__(self, starts: Sequence[RankStart], command: Sequence[str] = COMMAND) -> None:
        self.peers: list[Peer] = []
        self._ring_descriptor = anonymous_memory(ring_bytes())
        self._ring = Ring(self._ring_descriptor, len(starts))
        try:
            for start in starts:
                self.peers.append(self._start(start, command))
        except BaseException:
            self.stop()
            raise

    def send(self, message: bytes) -> None:
        """Gives every rank a message.

        Raises:
            EngineDeadError: a rank has ended.
        """
        self._ring.write(message, self._wake, self._wait_for_room)

    def check(self, timeout_s: float = 0.0) -> None:
        """Looks whether all still live; for at most so long, until one does not.

        Raises:
            EngineDeadError: a rank has ended, or says that it fails.
        """
        # One that has ended without a word comes first: the others have only noticed that it is gone.
        for peer in sorted(_readable(self.peers, timeout_s), key=lambda peer: not peer.has_hung_up):
            message = peer.read()
            if isinstance(message, RankFailed):
                raise EngineDeadError(f"{peer.name} failed: {message.message}")
            peer.unread.append(message)

    def stop(self) -> None:
        """Ends all processes, by force if need be, and gives the memory back. Harmless when repeated."""
        for peer in self.peers:
            assert peer.process.stdin is not None
            with contextlib.suppress(OSError):
                peer.process.stdin.close()
            peer.line.close()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for peer in self.peers:
            try:
                peer.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                peer.process.kill()
                peer.process.wait()
        self.peers = []
        if self._ring_descriptor >= 0:
            self._ring.close()
            os.close(self._ring_descriptor)
            self._ring_descriptor = -1

    def _start(self, start: RankStart, command: Sequence[str]) -> Peer:
        own, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(self._ring_descriptor)],
                stdin=subprocess.PIPE,
                pass_fds=(theirs.fileno(), self._ring_descriptor),
                start_new_session=True,  # Ctrl-C is for rank 0, which then stops the others
            )
        payload = msgspec.msgpack.encode(start)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # one that died at once is noticed when it is to report
            process.stdin.write(len(payload).to_bytes(LENGTH_BYTES, "little") + payload)
            process.stdin.flush()
        return Peer(start.rank, process, own)

    def _wake(self) -> None:
        for peer in self.peers:
            try:
                peer.line.sendall(b"\0")
            except OSError:
                raise EngineDeadError(f"{peer.name} {peer.end()}; the log above may say why.") from None

    def _wait_for_room(self) -> None:
        self.check(FULL_RING_PAUSE_S)


def _readable(peers: Sequence[Peer], timeout_s: float) -> list[Peer]:
    """Those with something to read on their lines, their end included; waits for one for at most so long."""
    poll = (
        select.poll()
    )  # not select: it takes no descriptor above 1023, and `LLM` may live in a large program
    by_descriptor = {peer.line.fileno(): peer for peer in peers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(timeout_s * 1000)]
