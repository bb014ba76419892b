"""The compile process: holds a tokenizer and forks a short-lived process for every form.

A schema from a stranger may take any time and any memory, or bring a library down. Here that costs one process, made in
milliseconds from one that is ready. Started as `python -m qanat.structured.compile_process`; messages come on standard
input and go out on standard output, and the end of standard input ends everything.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field

import msgspec

from qanat.structured.backend import make_backend
from qanat.structured.compile_job import Bench, after_death, fork_job, out_of_time
from qanat.structured.compile_messages import (
    CHUNK_BYTES,
    Cancel,
    Compile,
    FrameReader,
    FromCompiler,
    Setup,
    ToCompiler,
    framed,
)
from qanat.structured.vocabulary import Vocabulary


@dataclass
class _Job:
    job_id: int
    pid: int
    deadline_s: float
    answer: bytearray = field(default_factory=bytearray)


class CompileProcess:
    """Takes jobs, watches their time, passes answers on.

    Args:
        inbox: descriptor that messages come from.
        outbox: descriptor that answers go to.
    """

    def __init__(self, inbox: int, outbox: int) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._decoder: msgspec.msgpack.Decoder[ToCompiler] = msgspec.msgpack.Decoder(ToCompiler)
        self._frames = FrameReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(inbox, selectors.EVENT_READ)
        self._jobs: dict[int, _Job] = {}  # by the descriptor of their answer
        self._setup: Setup | None = None
        self._bench: Bench | None = None

    def run(self) -> None:
        """Serves until standard input ends."""
        while True:
            for key, _ in self._selector.select(self._wait_s()):
                if key.fd != self._inbox:
                    self._read_answer(key.fd)
                    continue
                data = os.read(self._inbox, CHUNK_BYTES)
                if not data:
                    self._end_all()
                    return
                for payload in self._frames.feed(data):
                    self._take(self._decoder.decode(payload))
            self._end_late()

    def _take(self, message: ToCompiler) -> None:
        if isinstance(message, Setup):
            vocabulary = Vocabulary.unpacked(message.packed_vocabulary)
            self._setup = msgspec.structs.replace(message, packed_vocabulary=b"")
            backend = make_backend(message.backend, vocabulary)
            self._bench = Bench(backend, vocabulary.num_mask_words, vocabulary.eos_ids)
        elif isinstance(message, Compile):
            self._start(message)
        elif isinstance(message, Cancel):
            for descriptor, job in list(self._jobs.items()):
                if job.job_id == message.job_id:
                    self._end(descriptor, kill=True)

    def _start(self, message: Compile) -> None:
        assert self._setup is not None and self._bench is not None, "the set-up comes first"
        pid, descriptor = fork_job(self._bench, self._setup, message)
        self._jobs[descriptor] = _Job(message.job_id, pid, time.monotonic() + self._setup.timeout_s)
        self._selector.register(descriptor, selectors.EVENT_READ)

    def _read_answer(self, descriptor: int) -> None:
        job = self._jobs.get(descriptor)
        if job is None:
            return
        data = os.read(descriptor, CHUNK_BYTES)
        if data:
            job.answer += data
            return
        assert self._setup is not None
        status = self._end(descriptor, kill=False)
        if FrameReader().feed(bytes(job.answer)):
            self._write(bytes(job.answer))
        else:
            self._send(after_death(job.job_id, self._setup, status))

    def _wait_s(self) -> float | None:
        if not self._jobs:
            return None
        return max(0.0, min(job.deadline_s for job in self._jobs.values()) - time.monotonic())

    def _end_late(self) -> None:
        now_s = time.monotonic()
        for descriptor, job in list(self._jobs.items()):
            if job.deadline_s <= now_s:
                assert self._setup is not None
                self._end(descriptor, kill=True)
                self._send(out_of_time(job.job_id, self._setup))

    def _end_all(self) -> None:
        for descriptor in list(self._jobs):
            self._end(descriptor, kill=True)

    def _end(self, descriptor: int, *, kill: bool) -> int:
        """Forgets a job; returns how its process ended."""
        job = self._jobs.pop(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if kill:
            os.kill(job.pid, signal.SIGKILL)
        return os.waitpid(job.pid, 0)[1]

    def _send(self, message: FromCompiler) -> None:
        self._write(framed(message))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._outbox, view) :]


def main() -> int:
    """Runs the process; returns its exit code."""
    outbox = os.dup(sys.stdout.fileno())
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # a library that prints must not end up among the answers
    try:
        CompileProcess(sys.stdin.fileno(), outbox).run()
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
