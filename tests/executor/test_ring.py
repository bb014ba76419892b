from __future__ import annotations

import os
import queue
import random
import threading
from collections.abc import Iterator

import pytest

from qanat.executor.ring import HEAD, Ring, anonymous_memory, ring_bytes

NUM_SLOTS, SLOT_BYTES = 3, 64


class Ends:
    """A writer and two readers on the same memory; semaphores stand for the sockets that wake readers."""

    def __init__(self) -> None:
        self.descriptor = anonymous_memory(ring_bytes(NUM_SLOTS, SLOT_BYTES))
        self.writer, *self.readers = (
            Ring(self.descriptor, 2, num_slots=NUM_SLOTS, slot_bytes=SLOT_BYTES) for _ in range(3)
        )
        self.filled = [threading.Semaphore(0) for _ in range(2)]
        self.num_waits = 0

    def notify(self) -> None:
        for semaphore in self.filled:
            semaphore.release()

    def wait(self) -> None:
        self.num_waits += 1

    def write(self, message: bytes) -> None:
        self.writer.write(message, self.notify, self.wait)

    def read(self, reader: int) -> bytes:
        return self.readers[reader].read(reader, lambda: assert_true(self.filled[reader].acquire(timeout=30)))


def assert_true(is_true: bool) -> None:
    assert is_true


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    for ring in (made.writer, *made.readers):
        ring.close()
    os.close(made.descriptor)


def test_every_reader_gets_every_message_whatever_its_length(ends: Ends) -> None:
    """Messages of 1 byte to 20 slots, far more than the ring holds."""
    chance = random.Random(1)
    room = SLOT_BYTES - HEAD.size
    lengths = [1, room - 1, room, room + 1, 20 * room, *(chance.randint(1, 400) for _ in range(200))]
    messages = [chance.randbytes(length) for length in lengths]
    got: list[queue.Queue[bytes]] = [queue.Queue(), queue.Queue()]

    def take(reader: int) -> None:
        for _ in messages:
            got[reader].put(ends.read(reader))

    threads = [threading.Thread(target=take, args=(reader,), daemon=True) for reader in range(2)]
    for thread in threads:
        thread.start()
    for message in messages:
        ends.write(message)
    for reader, thread in enumerate(threads):
        thread.join(30)
        assert [got[reader].get_nowait() for _ in messages] == messages


def test_a_slot_is_not_written_again_before_the_slowest_reader_has_read_it(ends: Ends) -> None:
    class GaveUpError(Exception):
        pass

    def give_up() -> None:
        raise GaveUpError

    for number in range(NUM_SLOTS):
        ends.write(bytes([number]))
    for number in range(NUM_SLOTS):
        assert ends.read(0) == bytes([number])
    with pytest.raises(GaveUpError):
        ends.writer.write(b"x", ends.notify, give_up)
    assert ends.read(1) == b"\0"
    ends.writer.write(b"x", ends.notify, give_up)
    assert [ends.read(1) for _ in range(NUM_SLOTS)] == [b"\1", b"\2", b"x"]


def test_the_memory_has_no_name() -> None:
    descriptor = anonymous_memory(ring_bytes())
    assert os.fstat(descriptor).st_nlink == 0
    assert os.fstat(descriptor).st_size == ring_bytes()
    os.close(descriptor)
