"""Starts the engine core's process and talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, error_of
from qanat.core.log_lines import present_format
from qanat.engine.ending import LAST_DEEDS_S
from qanat.engine.inbox import next_message
from qanat.engine.last_words import ask_for_stacks, describe_exit, read_last_words
from qanat.engine.messages import (
    FROM_CORE_SOCKET,
    LENGTH_BYTES,
    TO_CORE_SOCKET,
    FromCore,
    Ready,
    StartFailed,
    ToCore,
)

STOP_TIMEOUT_S = 5.0
MAX_PARENT_BYTES = 75


class ProcessClient:
    """The front end's end of the line to one core process.

    Sockets lie in a folder that only this user can enter. The child's standard input is held open and carries the
    configuration; when this process ends in any way, the child sees its end and exits.

    Attributes:
        start_s: seconds that the start has taken; 0 before.

    Raises:
        OSError: there is no room for the folder, or there are no files left for the sockets.
    """

    def __init__(self) -> None:
        self._folder = _socket_folder()
        self._context = zmq.asyncio.Context()
        try:
            self._outbox = self._bound_socket(zmq.PUSH, TO_CORE_SOCKET)
            self._inbox = self._bound_socket(zmq.PULL, FROM_CORE_SOCKET)
        except BaseException:
            self._release()
            raise
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromCore)
        self._process: asyncio.subprocess.Process | None = None
        self._exit: asyncio.Task[int] | None = None
        self._num_words_read = 0
        self._stop_timeout_s = STOP_TIMEOUT_S
        self.start_s = 0.0

    @property
    def folder(self) -> Path:
        """Where the sockets lie."""
        return self._folder

    @property
    def pid(self) -> int | None:
        """Process id of the core, None before the start."""
        return self._process.pid if self._process else None

    async def start(self, config: ResolvedConfig) -> Ready:
        """Starts the core and waits until it serves.

        Raises:
            QanatError: of the kind that the core met, with its message.
            EngineDeadError: it died or did not answer within `config.init_timeout_s`.
        """
        begin_s = time.monotonic()
        if config.prefix_cache is not None and config.prefix_cache.folder:
            self._stop_timeout_s += LAST_DEEDS_S
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "qanat.engine.core_process",
            str(self._folder),
            str(logging.getLogger().getEffectiveLevel()),
            present_format(),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the front end, which then stops the core
        )
        self._exit = asyncio.create_task(self._process.wait())
        payload = self._encoder.encode(config)
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # a child that died at once is reported below
            self._process.stdin.write(len(payload).to_bytes(LENGTH_BYTES, "little") + payload)
            await self._process.stdin.drain()
        try:
            message = await asyncio.wait_for(self.receive(), config.init_timeout_s)
        except TimeoutError:
            raise EngineDeadError(
                f"The engine process was not ready within {config.init_timeout_s:.0f} s (--init-timeout-s)."
            ) from None
        if isinstance(message, StartFailed):
            raise error_of(message.code, message.message)
        assert isinstance(message, Ready)
        self.start_s = time.monotonic() - begin_s
        return message

    async def send(self, message: ToCore) -> None:
        """Queues a message for the core.

        Raises:
            EngineDeadError: the core has hung up; waiting for it, as the socket would, might never end.
        """
        await self.send_encoded(self._encoder.encode(message))

    async def send_encoded(self, message: bytes) -> None:
        """The same of a `ToCore` as it has come from elsewhere."""
        try:
            await self._outbox.send(message, flags=zmq.NOBLOCK)
        except zmq.ZMQError:  # also when this end has been closed
            raise EngineDeadError("The engine process has ended; the server's log has the reason.") from None

    async def receive(self) -> FromCore:
        """The next message; one that is already there comes at once, without a turn of the event loop.

        Raises:
            EngineDeadError: the process ended and nothing more can come.
        """
        return self._decoder.decode(await self.receive_encoded())

    async def receive_encoded(self) -> bytes:
        """The same as it is, to be passed on."""
        assert self._exit is not None
        message = await next_message(self._inbox, self._exit)
        if message is None:
            raise EngineDeadError(
                f"The engine process {describe_exit(self._exit.result())}; the server's log has more."
            )
        return message

    async def ask_for_stacks(self) -> str:
        """Where all threads of the core are now, or why it does not say; works also while it is stuck."""
        if self.pid is None:
            return "(no process)"
        stacks = await ask_for_stacks(self._folder, self.pid)
        self._num_words_read += len(read_last_words(self._folder, self._num_words_read).encode())
        return stacks

    def last_words(self) -> str:
        """What a core that has died left behind, on lines of its own; "" if nothing. To be asked before `stop`."""
        words = read_last_words(self._folder, self._num_words_read)
        return f"\n{words}" if words else ""

    async def stop(self) -> None:
        """Ends the process by closing its standard input; by force if that does not help. Safe to call twice."""
        try:
            if self._process is not None and self._exit is not None and not self._exit.done():
                assert self._process.stdin is not None
                self._process.stdin.close()
                done, _ = await asyncio.wait({self._exit}, timeout=self._stop_timeout_s)
                if not done:
                    self._process.kill()
                    await self._exit
        finally:  # also when this is cancelled: a context that is left to the garbage collector blocks the loop
            self._release()

    def _bound_socket(self, kind: int, name: str) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
        socket.bind(f"ipc://{self._folder / name}")
        return socket

    def _release(self) -> None:
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)


def _socket_folder() -> Path:
    """A new folder with mode 0700, with a path short enough for a Unix socket in it (107 bytes on Linux)."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > MAX_PARENT_BYTES:
        parent = "/tmp"
    return Path(tempfile.mkdtemp(prefix="qanat-", dir=parent))
