"""A rank other than the first, in a process of its own.

Started by `qanat.executor.rank_processes` as `python -m qanat.executor.rank_process LINE RING`, the numbers of two
inherited file descriptors: a socket to rank 0, and the ring that carries batches. What it needs to know comes on
standard input, which stays open as long as rank 0 lives; its end is how this process notices, wherever it is, that it
has to end.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from typing import NoReturn

import msgspec

from qanat.core.batch import ScheduledBatch
from qanat.core.errors import QanatError
from qanat.core.log_lines import write_log
from qanat.executor.rank_messages import (
    LENGTH_BYTES,
    FromRank,
    RankFailed,
    RankLoaded,
    RankStart,
    report_of,
)
from qanat.executor.ring import Ring
from qanat.platforms.cpu import CpuPlatform
from qanat.worker.worker import Worker

logger = logging.getLogger(__name__)


class RankProcess:
    """One rank's end of the line.

    Args:
        start: what rank 0 told.
        line: socket to rank 0.
        ring: carries the batches.
    """

    def __init__(self, start: RankStart, line: socket.socket, ring: Ring) -> None:
        self._start, self._line, self._ring = start, line, ring

    def run(self) -> NoReturn:
        """Joins the group, loads, and computes batches until rank 0 is gone.

        Raises:
            QanatError, RuntimeError: the start or a step failed.
        """
        start, platform = self._start, CpuPlatform()
        meeting = platform.meeting(start.meeting_port, start.join_timeout_s)
        available_bytes = platform.memory().available_bytes
        self.send(report_of(start.rank, start.config, meeting.address, available_bytes))
        config = start.config
        group = meeting.join(start.rank, config.tensor_parallel_size, config.step_timeout_s)
        worker = Worker(config, start.memory_plan, platform, group=group)
        worker.load()
        self.send(RankLoaded())
        decoder = msgspec.msgpack.Decoder(ScheduledBatch)
        while True:
            worker.execute(decoder.decode(self._ring.read(start.rank - 1, self._wait)))

    def send(self, message: FromRank) -> None:
        """Tells rank 0."""
        payload = msgspec.msgpack.encode(message)
        self._line.sendall(len(payload).to_bytes(LENGTH_BYTES, "little") + payload)

    def _wait(self) -> None:
        """Returns once a slot of the ring is filled."""
        if not self._line.recv(1):
            os._exit(0)


def read_start() -> RankStart | None:
    """What rank 0 tells on standard input; None if it hung up before it was there."""
    size = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "little")
    payload = sys.stdin.buffer.read(size)
    if not size or len(payload) < size:
        return None
    return msgspec.msgpack.decode(payload, type=RankStart)


def exit_with_parent() -> None:
    """Ends this process as soon as standard input ends; in a thread."""
    stdin = sys.stdin.fileno()

    def watch() -> None:
        while os.read(stdin, 1):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(line_descriptor: int, ring_descriptor: int) -> int:
    """Runs the process; returns its exit code."""
    start = read_start()
    if start is None:
        return 0
    exit_with_parent()
    rank = start.rank

    def name_rank(record: logging.LogRecord) -> bool:
        record.msg = f"[rank {rank}] {record.msg}"
        return True

    write_log(start.log_format, start.log_level).addFilter(name_rank)
    line = socket.socket(fileno=line_descriptor)
    process = RankProcess(start, line, Ring(ring_descriptor, start.config.tensor_parallel_size - 1))
    try:
        process.run()
    except QanatError as error:
        process.send(RankFailed(error.code, error.message))
    except Exception as error:  # rank 0 says what follows from it
        logger.error("The process of this rank fails.", exc_info=error)
        process.send(RankFailed(QanatError.code, f"{type(error).__name__}: {error}"))
    # Not sys.exit: threads of the group's library may wait for ranks that are gone.
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
