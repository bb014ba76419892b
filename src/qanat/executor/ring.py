"""A ring of slots in shared memory: one process writes messages, several read each of them.

The memory has no name, only a file descriptor that children inherit, so nothing is left behind however they end. It
starts with one 64-bit count per reader, of the slots that it has read; slots follow from the next page on, each an
8-byte head (length, and whether the message ends here) and its bytes. The last 64 bits before the slots count beats of
the writer, by which readers know that it does not stand still. A message longer than a slot takes several. Who
wakes the readers is not the ring's business: they are told over a socket, which also orders memory between processes.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Callable

NUM_SLOTS = 8
SLOT_BYTES = 2**18
HEAD = struct.Struct("<II")
COUNT = struct.Struct("<Q")
PAGE_BYTES = 4096
BEATS_OFFSET = PAGE_BYTES - COUNT.size
FULL_RING_PAUSE_S = 0.0005
"""How long a writer waits before it looks again whether a slot has become free."""


class Ring:
    """One end of a ring, for the writer or for a reader.

    Args:
        file_descriptor: of the memory; the caller keeps and closes it.
        num_readers: how many there are, at most 511.
        num_slots, slot_bytes: sizes, the same at all ends.
    """

    def __init__(
        self,
        file_descriptor: int,
        num_readers: int,
        *,
        num_slots: int = NUM_SLOTS,
        slot_bytes: int = SLOT_BYTES,
    ) -> None:
        self._num_readers, self._num_slots, self._slot_bytes = num_readers, num_slots, slot_bytes
        self._memory = mmap.mmap(file_descriptor, ring_bytes(num_slots, slot_bytes))
        self._num_done = 0

    def write(self, message: bytes, notify: Callable[[], None], wait: Callable[[], None]) -> None:
        """Puts a message into the next slots.

        Args:
            message: at least one byte.
            notify: called after each slot that was filled; tells every reader to read one.
            wait: called again and again while the slowest reader has no free slot; may raise to give up.
        """
        room = self._slot_bytes - HEAD.size
        for start in range(0, len(message), room):
            part = message[start : start + room]
            while self._num_done - self._num_read_by_all() >= self._num_slots:
                wait()
            offset = self._offset(self._num_done)
            self._memory[offset + HEAD.size : offset + HEAD.size + len(part)] = part
            HEAD.pack_into(self._memory, offset, len(part), start + room >= len(message))
            self._num_done += 1
            notify()

    def read(self, reader: int, wait_for_slot: Callable[[], None]) -> bytes:
        """The next message.

        Args:
            reader: 0 to num_readers - 1.
            wait_for_slot: returns once for each slot that was filled.
        """
        parts = []
        is_end = False
        while not is_end:
            wait_for_slot()
            offset = self._offset(self._num_done)
            length, is_end = HEAD.unpack_from(self._memory, offset)
            parts.append(self._memory[offset + HEAD.size : offset + HEAD.size + length])
            self._num_done += 1
            COUNT.pack_into(self._memory, reader * COUNT.size, self._num_done)
        return b"".join(parts)

    @property
    def num_beats(self) -> int:
        """How often the writer has called `beat`."""
        return int(COUNT.unpack_from(self._memory, BEATS_OFFSET)[0])

    def beat(self) -> None:
        """The writer's sign that it does not stand still; from one thread."""
        COUNT.pack_into(self._memory, BEATS_OFFSET, self.num_beats + 1)

    def close(self) -> None:
        """Unmaps the memory."""
        self._memory.close()

    def _num_read_by_all(self) -> int:
        return min(
            COUNT.unpack_from(self._memory, reader * COUNT.size)[0] for reader in range(self._num_readers)
        )

    def _offset(self, number: int) -> int:
        return PAGE_BYTES + number % self._num_slots * self._slot_bytes


def ring_bytes(num_slots: int = NUM_SLOTS, slot_bytes: int = SLOT_BYTES) -> int:
    """Size of the memory."""
    return PAGE_BYTES + num_slots * slot_bytes


def anonymous_memory(size_bytes: int) -> int:
    """A file descriptor of zeroed memory that no path leads to; gone with its last user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("qanat-ring")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size_bytes)
    return descriptor
