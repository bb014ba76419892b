"""The ranks of one host in processes of their own: started, woken, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from qanat.executor.peers import Peer
from qanat.executor.rank_messages import RankStart, framed
from qanat.executor.ring import Ring, anonymous_memory, ring_bytes

COMMAND = (sys.executable, "-m", "qanat.executor.rank_process")
STOP_TIMEOUT_S = 3.0
END_S = 2.0
"""So long is waited for the exit code of a process that has closed its line."""


class RankProcesses:
    """All ranks of this host but the calling process's own.

    Args:
        starts: what each is told, in order of rank.
        command: starts one; two file descriptors are added.
    """

    def __init__(self, starts: Sequence[RankStart], command: Sequence[str] = COMMAND) -> None:
        self.peers: list[Peer] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ring_descriptor = anonymous_memory(ring_bytes())
        self._ring = Ring(self._ring_descriptor, len(starts))
        try:
            for start in starts:
                self.peers.append(self._start(start, command))
        except BaseException:
            self.stop()
            raise

    def send(self, message: bytes, wait: Callable[[], None]) -> None:
        """Gives every rank a batch.

        Args:
            message: the batch.
            wait: called again and again while a rank has not read what came before; may raise to give up.

        Raises:
            EngineDeadError: a rank has ended.
        """
        if self.peers:
            self._ring.write(message, self._wake, wait)

    def beat(self) -> None:
        """Shows the ranks that this process does not stand still; who has once begun has to go on."""
        if self._ring_descriptor >= 0:
            self._ring.beat()

    def stop(self) -> None:
        """Ends all processes, by force if need be, and gives the memory back. Harmless when repeated."""
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        for peer in self.peers:
            peer.line.close()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.peers, self._processes = [], []
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
                start_new_session=True,  # Ctrl-C is for the process that stops them
            )
        self._processes.append(process)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # one that died at once is noticed when it is to report
            process.stdin.write(framed(start))
            process.stdin.flush()
        name = f"Rank {start.rank} (process {process.pid})"
        return Peer(start.rank, name, own, own.sendall, lambda: _end_of(process), process.pid)

    def _wake(self) -> None:
        for peer in self.peers:
            peer.send(b"\0")


def _end_of(process: subprocess.Popen[bytes]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    code = process.returncode
    if code is None:
        return "hung up"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
