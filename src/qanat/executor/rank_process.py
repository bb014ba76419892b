"""A rank other than the first, in a process of its own.

Started by `qanat.executor.rank_processes` as `python -m qanat.executor.rank_process LINE RING`, the numbers of two
inherited file descriptors: a socket to whoever started it, and the ring that carries batches. What it needs to know
comes on standard input, which stays open as long as that process lives; its end is how this process notices, wherever
it is, that it has to end.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

import msgspec

from qanat.core.batch import ScheduledBatch
from qanat.core.errors import ProfilerStateError, QanatError
from qanat.core.log_lines import write_log
from qanat.core.prefix_entry import PrefixOrder
from qanat.executor.rank_messages import (
    KEEP,
    LENGTH_BYTES,
    START_PROFILE,
    STOP_PROFILE,
    AllJoined,
    FromRank,
    Note,
    RankFailed,
    RankJoined,
    RankLoaded,
    RankStart,
    ToRank,
    framed,
)
from qanat.executor.reports import report_of
from qanat.executor.ring import Ring
from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import CollectiveError, Place
from qanat.platforms.metered import MeteredGroup
from qanat.platforms.notes import Notes
from qanat.worker.worker import Worker

logger = logging.getLogger(__name__)

SET_PARENT_DEATH_SIGNAL = 1
"""Linux's PR_SET_PDEATHSIG."""
LOOK_S = 0.5
MAX_LOOKS = 60
"""A process that showed signs of life and shows none in so many looks stands still; the group is long gone by then."""


class RankProcess:
    """One rank's end of the line.

    Args:
        start: what it was told.
        line: socket to rank 0, or to the process that passes on what rank 0 says.
        ring: carries the batches.
    """

    def __init__(self, start: RankStart, line: socket.socket, ring: Ring) -> None:
        self._start, self._line, self._ring = start, line, ring
        self._group: MeteredGroup | None = None

    def run(self) -> NoReturn:
        """Joins the group, loads, and computes batches until rank 0 is gone.

        Raises:
            QanatError, RuntimeError: the start or a step failed.
        """
        start, platform = self._start, CpuPlatform()
        self.send(report_of(start.rank, start.config, start.address, platform.memory().available_bytes))
        notes = Notes(lambda key, value: self.send(Note(key, value)))
        listener = threading.Thread(target=self._take_notes, args=(notes,), name="notes", daemon=True)
        listener.start()
        config = start.config
        place = Place(
            start.rank,
            config.tensor_parallel_size,
            start.address,
            start.secret,
            start.join_timeout_s,
            config.step_timeout_s,
        )
        self._group = MeteredGroup(platform.join(place, notes))
        self.send(RankJoined())
        listener.join()
        worker = Worker(config, start.memory_plan, platform, group=self._group)
        worker.load()
        self.send(RankLoaded())
        decoder = msgspec.msgpack.Decoder(ScheduledBatch)
        while True:
            message = self._ring.read(start.reader, self._wait)
            if message in (START_PROFILE, STOP_PROFILE):
                _control_profile(worker, message)
            elif message.startswith(KEEP):
                worker.keep(msgspec.msgpack.decode(message[len(KEEP) :], type=PrefixOrder))
            else:
                worker.execute(decoder.decode(message))

    def send(self, message: FromRank) -> None:
        """Tells rank 0."""
        self._line.sendall(framed(message))

    def fail(self, error: Exception) -> None:
        """Tells rank 0 what ends this process."""
        code = error.code if isinstance(error, QanatError) else QanatError.code
        message = error.message if isinstance(error, QanatError) else f"{type(error).__name__}: {error}"
        num_entered = self._group.num_entered if self._group is not None else 0
        self.send(RankFailed(code, message, isinstance(error, CollectiveError), num_entered))

    def _take_notes(self, notes: Notes) -> None:
        decoder = msgspec.msgpack.Decoder(ToRank)
        while True:
            size = int.from_bytes(self._receive(LENGTH_BYTES), "little")
            message = decoder.decode(self._receive(size))
            if isinstance(message, AllJoined):
                return
            notes.put(message.key, message.value)

    def _wait(self) -> None:
        """Returns once a slot of the ring is filled."""
        self._receive(1)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._line.recv(size - len(data))
            if not part:
                os._exit(0)
            data += part
        return data


def _control_profile(worker: Worker, message: bytes) -> None:
    """Starts or ends this rank's profile; what becomes of it stands in the log."""
    try:
        if message == START_PROFILE:
            worker.profiler.start()
        else:
            worker.profiler.stop(lambda report: None)
    except ProfilerStateError:
        logger.info("This rank's profile had ended by itself.")
    except QanatError as error:
        logger.error("This rank writes no profile: %s", error.message)


def read_start() -> RankStart | None:
    """What is told on standard input; None if it ended before that was there."""
    size = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "little")
    payload = sys.stdin.buffer.read(size)
    if not size or len(payload) < size:
        return None
    return msgspec.msgpack.decode(payload, type=RankStart)


def exit_with_parent(is_killed: bool) -> None:
    """Ends this process as soon as standard input ends; in a thread.

    Args:
        is_killed: have the system kill it besides, which also ends a process that was stopped.
    """
    stdin = sys.stdin.fileno()

    def watch() -> None:
        while os.read(stdin, 1):
            pass
        os._exit(0)

    if is_killed and sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def exit_if_silent(ring: Ring) -> None:
    """Ends this process where the one that writes the ring has begun to beat and stands still.

    Looks are counted rather than seconds: while this process or the whole machine stood still, nobody was silent.
    """

    def watch() -> None:
        num_beats, num_looks = 0, 0
        while num_looks < MAX_LOOKS:
            time.sleep(LOOK_S)
            before, num_beats = num_beats, ring.num_beats
            num_looks = num_looks + 1 if num_beats and num_beats == before else 0
        logger.error(
            "The process that passes on what rank 0 says stands still for %.0f s; this rank ends.",
            MAX_LOOKS * LOOK_S,
        )
        sys.stderr.flush()
        os._exit(1)

    threading.Thread(target=watch, name="silence-watch", daemon=True).start()


def main(line_descriptor: int, ring_descriptor: int) -> int:
    """Runs the process; returns its exit code."""
    start = read_start()
    if start is None:
        return 0
    exit_with_parent(start.dies_with_parent)
    rank = start.rank

    def name_rank(record: logging.LogRecord) -> bool:
        record.msg = f"[rank {rank}] {record.msg}"
        return True

    write_log(start.log_format, start.log_level).addFilter(name_rank)
    line = socket.socket(fileno=line_descriptor)
    ring = Ring(ring_descriptor, start.num_readers)
    exit_if_silent(ring)
    process = RankProcess(start, line, ring)
    try:
        process.run()
    except Exception as error:  # rank 0 says what follows from it
        if not isinstance(error, QanatError | CollectiveError):
            logger.error("The process of this rank fails.", exc_info=error)
        try:
            process.fail(error)
        except OSError:
            logger.error("The process of this rank ends, and rank 0 is gone: %s", error)
    # Not sys.exit: threads of the group's library may wait for ranks that are gone.
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
