"""Rank 0's view of another rank: what it says, how it ended, and who is to blame when an exchange fails."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from qanat.core.errors import EngineDeadError
from qanat.executor.rank_messages import LENGTH_BYTES, FromRank, RankFailed, RankReport

LAST_WORD_S = 3.0
"""After an exchange that failed, so long is waited for a rank to say, or show, that it was the one."""


@dataclass
class Peer:
    """Another rank.

    Attributes:
        rank: its number.
        name: for messages.
        line: where what it says is read.
        tell: sends it a framed message; raises OSError if it is gone.
        end: how it ended, once its line is at its end.
        pid: of its process; 0 while it is not known.
        unread: messages that came while something else was waited for.
        last_word: with which it ended.
    """

    rank: int
    name: str
    line: socket.socket
    tell: Callable[[bytes], None]
    end: Callable[[], str]
    pid: int = 0
    unread: list[FromRank] = field(default_factory=list)
    last_word: RankFailed | None = None

    def identify(self, report: RankReport) -> None:
        """Takes over what the rank says of itself, where this host did not start it."""
        if self.pid == 0:
            self.pid = report.pid
            self.name = f"Rank {self.rank} (process {report.pid} on {report.host} at {report.address})"

    def receive(self, timeout_s: float) -> FromRank | None:
        """Its next message; None if there is none within the time.

        Raises:
            EngineDeadError: it has ended.
        """
        if self.unread:
            return self.unread.pop(0)
        if not readable([self], max(0.0, timeout_s)):
            return None
        return self.read()

    def read(self) -> FromRank:
        """The next message on the line, which can be read.

        Raises:
            EngineDeadError: it has ended.
        """
        return msgspec.msgpack.decode(self.read_frame()[LENGTH_BYTES:], type=FromRank)

    def read_frame(self) -> bytes:
        """The next message as it came, its length included.

        Raises:
            EngineDeadError: it has ended.
        """
        length = self._read(LENGTH_BYTES)
        return length + self._read(int.from_bytes(length, "little"))

    def send(self, frame: bytes) -> None:
        """Sends it a framed message, or what else it understands.

        Raises:
            EngineDeadError: it has ended.
        """
        try:
            self.tell(frame)
        except OSError:
            raise self.death() from None

    def death(self) -> EngineDeadError:
        """What to say of its end."""
        return EngineDeadError(f"{self.name} {self.end()}; the log above may say why.")

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.line.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise self.death()
            data += part
        return data


def readable(peers: Sequence[Peer], timeout_s: float) -> list[Peer]:
    """Those with something to read on their lines, their end included; waits for one for at most so long."""
    poll = (
        select.poll()
    )  # not select: it takes no descriptor above 1023, and `LLM` may live in a large program
    by_descriptor = {peer.line.fileno(): peer for peer in peers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(timeout_s * 1000)]


def news(peers: Sequence[Peer], timeout_s: float) -> Iterator[tuple[Peer, FromRank]]:
    """What has been said and not yet read; waits for something for at most so long.

    Raises:
        EngineDeadError: a rank has ended or says that it fails; see `blame`.
    """
    for peer in peers:
        while peer.unread:
            yield peer, peer.unread.pop(0)
    for peer in readable(peers, timeout_s):
        message = peer.read()
        if isinstance(message, RankFailed):
            peer.last_word = message
            raise blame(peers, None)
        yield peer, message


def blame(peers: Sequence[Peer], num_entered: int | None) -> EngineDeadError:
    """Who is to blame for an exchange that failed, after everyone had time for a last word.

    A rank that ended without a word, or by an error of its own, comes first; then those that stand still, which say
    nothing; then the one that had begun fewer exchanges than the others.

    Args:
        peers: all other ranks.
        num_entered: exchanges that rank 0 had begun; None if it did not fail.
    """
    deadline_s = time.monotonic() + LAST_WORD_S
    silent = [peer for peer in peers if peer.last_word is None]
    while True:
        for peer in peers:
            word = peer.last_word
            if word is not None and not word.is_consequence:
                return EngineDeadError(f"{peer.name} failed: {word.message}")
        left_s = deadline_s - time.monotonic()
        if not silent or left_s <= 0:
            break
        for peer in readable(silent, left_s):
            try:
                message = peer.read()
            except EngineDeadError as death:
                return EngineDeadError(death.message)
            if isinstance(message, RankFailed):
                peer.last_word = message
                silent.remove(peer)
    if silent and num_entered is not None:  # else they may well wait for the next batch
        names = " and ".join(peer.name for peer in silent)
        return EngineDeadError(f"{names} stood still in the middle of a step; it is ended by force.")
    return _last_of(peers, num_entered)


def _last_of(peers: Sequence[Peer], num_entered: int | None) -> EngineDeadError:
    begun = {peer.name: peer.last_word.num_entered for peer in peers if peer.last_word is not None}
    words = next((peer.last_word.message for peer in peers if peer.last_word is not None), "")
    if num_entered is not None:
        begun["Rank 0"] = num_entered
    fewest = min(begun.values(), default=0)
    late = [name for name, number in begun.items() if number == fewest]
    if len(late) < len(begun):
        return EngineDeadError(
            f"{' and '.join(late)} came too late to an exchange between the ranks: {words}"
        )
    return EngineDeadError(f"An exchange between the ranks failed: {words}")
