"""What is kept of each request while it runs: its times and the bytes that came, not yet understood.

Memory is bounded: what ended answers hold beyond a budget, and what a running one holds beyond `MAX_HELD_BYTES`, is
written to an unnamed temporary file; eight bytes of time and four of length for each piece stay.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from typing import IO

DEFAULT_BUDGET_BYTES = 256 * 2**20
MAX_HELD_BYTES = 2**20


class Recording:
    """One request and its answer; times are of `time.monotonic_ns`.

    Attributes:
        index: place in the plan.
        intended_ns: when the schedule wanted it sent.
        ready_ns: when nothing but the client itself was left to wait for: later than intended where the bound of
            concurrent requests held it back.
        sent_ns: when the client began with it; 0 before that.
        end_ns: when its answer or its failure was complete; 0 before that.
        times_ns: arrival of each piece.
        pieces: those that are still in memory.
        num_held_bytes: in them.
        failure: kind of what went wrong; empty if nothing did.
        message: what was seen of it.
        status: HTTP status; 0 without an answer.
        num_tries: connections that it was sent on; more than 1 where a kept one had just been closed.
    """

    __slots__ = (
        *("index", "intended_ns", "ready_ns", "sent_ns", "end_ns", "times_ns", "pieces", "num_held_bytes"),
        *("failure", "message", "status", "num_tries", "_lengths", "_spans"),
    )

    def __init__(self, index: int, intended_ns: int) -> None:
        self.index = index
        self.intended_ns = intended_ns
        self.ready_ns = intended_ns
        self.sent_ns = 0
        self.end_ns = 0
        self.times_ns = array("q")
        self.pieces: list[bytes] = []
        self.num_held_bytes = 0
        self.failure = ""
        self.message = ""
        self.status = 0
        self.num_tries = 0
        self._lengths = array("I")
        self._spans: list[tuple[int, int]] = []

    def forget(self) -> None:
        """Drops what came, before it is asked again."""
        self.times_ns, self._lengths = array("q"), array("I")
        self.pieces, self._spans, self.num_held_bytes = [], [], 0


class Store:
    """Where the recordings' bytes are.

    Args:
        budget_bytes: that ended answers may hold in memory.
    """

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._num_held_bytes = 0
        self._num_file_bytes = 0
        self._file: IO[bytes] | None = None

    @property
    def num_file_bytes(self) -> int:
        """Written to the temporary file so far."""
        return self._num_file_bytes

    def keep(self, recording: Recording) -> None:
        """Takes an answer that has ended."""
        if self._num_held_bytes + recording.num_held_bytes > self._budget_bytes:
            self.spill(recording)
        else:
            self._num_held_bytes += recording.num_held_bytes

    def give_back(self, recording: Recording) -> None:
        """Drops an answer that was taken, and the memory that it held."""
        self._num_held_bytes -= recording.num_held_bytes
        recording.forget()

    def spill(self, recording: Recording) -> None:
        """Writes what a recording holds to the file; it has failed where that cannot be done."""
        data = b"".join(recording.pieces)
        try:
            self._write(data)
        except OSError as error:
            recording.failure, recording.message = "not_kept", f"what came in cannot be written: {error}"
            recording.pieces.clear()
            recording.num_held_bytes = 0
            return
        recording._spans.append((self._num_file_bytes, len(data)))
        recording._lengths.extend(map(len, recording.pieces))
        recording.pieces.clear()
        recording.num_held_bytes = 0
        self._num_file_bytes += len(data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="qanat-bench-", buffering=0)  # noqa: SIM115
        self._file.seek(self._num_file_bytes)
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) or 0 :]

    def read(self, recording: Recording) -> Iterator[tuple[int, bytes]]:
        """Each piece with its time, in order; from the file where it lies there."""
        data = b""
        if self._file is not None:
            parts = []
            for offset, size in recording._spans:
                self._file.seek(offset)
                parts.append(self._file.read(size))
            data = b"".join(parts)
        at, number = 0, 0
        for length in recording._lengths:
            yield recording.times_ns[number], data[at : at + length]
            at += length
            number += 1
        yield from zip(recording.times_ns[number:], recording.pieces, strict=True)

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            self._file.close()
