"""The front end's end of the line to the compile process."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import msgspec

from qanat.core.errors import QanatError
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

START_TIMEOUT_S = 60.0
"""Room for the start of the process and for its tokenizer, beside the time limit of the job itself."""
STOP_TIMEOUT_S = 5.0


class CompilerDiedError(QanatError):
    """The compile process ended while a form was being compiled."""


class CompileChild:
    """One compile process. Dead once it has ended or `kill` was called; make another one then."""

    def __init__(self, process: asyncio.subprocess.Process, setup: Setup) -> None:
        self._process = process
        self._timeout_s = setup.timeout_s
        self._waiting: dict[int, asyncio.Future[FromCompiler]] = {}
        self._num_jobs = 0
        self._reader = asyncio.create_task(self._read())
        self._send(setup)

    @classmethod
    async def start(cls, setup: Setup) -> CompileChild:
        """Starts the process; it takes jobs at once and answers when its tokenizer is ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "qanat.structured.compile_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the front end
        )
        return cls(process, setup)

    @property
    def is_alive(self) -> bool:
        """False once nothing can be compiled by it."""
        return not self._reader.done()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def compile(self, job: Compile) -> FromCompiler:
        """Answer to a job; cancelling the caller's task cancels the job.

        Raises:
            CompilerDiedError: the process ended, or had to be ended as it did not answer.
        """
        answer: asyncio.Future[FromCompiler] = asyncio.get_running_loop().create_future()
        if not self.is_alive:
            raise CompilerDiedError("The compile process has ended.")
        self._num_jobs += 1
        job = msgspec.structs.replace(job, job_id=self._num_jobs)
        self._waiting[job.job_id] = answer
        self._send(job)
        try:
            return await asyncio.wait_for(answer, self._timeout_s + START_TIMEOUT_S)
        except TimeoutError:
            await self.stop()
            raise CompilerDiedError("The compile process did not answer and was ended.") from None
        except asyncio.CancelledError:
            self._send(Cancel(job.job_id))
            raise
        finally:
            self._waiting.pop(job.job_id, None)

    async def stop(self) -> None:
        """Ends the process and whatever it compiles. Safe to call twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._reader), STOP_TIMEOUT_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._reader
        await self._process.wait()

    def _send(self, message: ToCompiler) -> None:
        """Queues a message; a process that is gone is noticed by its silence."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(framed(message))

    async def _read(self) -> None:
        """Hands answers to those who wait, until the process ends."""
        assert self._process.stdout is not None
        frames = FrameReader()
        decoder: msgspec.msgpack.Decoder[FromCompiler] = msgspec.msgpack.Decoder(FromCompiler)
        with contextlib.suppress(ConnectionError):
            while data := await self._process.stdout.read(CHUNK_BYTES):
                for payload in frames.feed(data):
                    answer = decoder.decode(payload)
                    waiting = self._waiting.get(answer.job_id)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(CompilerDiedError("The compile process ended."))
