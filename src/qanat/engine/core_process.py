"""The engine core in a process of its own, so that nothing the front end does can delay a step.

Started by `qanat.engine.process_client` as `python -m qanat.engine.core_process FOLDER`, with the resolved
configuration on standard input. Standard input stays open as long as the parent lives: its end is how this process
notices, at once, that it has been orphaned.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
import zmq

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import QanatError
from qanat.engine.assembly import build_core
from qanat.engine.core import EngineCore
from qanat.engine.messages import (
    FROM_CORE_SOCKET,
    LENGTH_BYTES,
    TO_CORE_SOCKET,
    AbortRequest,
    AddRequest,
    FromCore,
    Shutdown,
    StartFailed,
    StepDone,
    ToCore,
)

IDLE_POLL_MS = 1000
LINGER_MS = 1000


class CoreProcess:
    """Sockets and main loop around an `EngineCore`."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._outbox = self._context.socket(zmq.PUSH)
        for socket, name in ((self._inbox, TO_CORE_SOCKET), (self._outbox, FROM_CORE_SOCKET)):
            socket.setsockopt(zmq.LINGER, LINGER_MS)
            socket.set_hwm(0)
            socket.connect(f"ipc://{folder / name}")
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToCore)
        self._is_running = True

    def send(self, message: FromCore) -> None:
        """Queues a message for the front end; never blocks."""
        self._outbox.send(self._encoder.encode(message))

    def run(self, core: EngineCore) -> None:
        """Serves until told to stop."""
        while self._is_running:
            self._drain_inbox(core)
            if core.has_work:
                outputs = core.step()
                self.send(StepDone(outputs, core.stats(), core.num_steps))
        core.shutdown()

    def close(self) -> None:
        """Closes the sockets after what is queued has been sent."""
        self._context.destroy(linger=LINGER_MS)

    def _drain_inbox(self, core: EngineCore) -> None:
        """Takes all messages that are there; waits for one if there is nothing else to do."""
        timeout_ms = 0 if core.has_work else IDLE_POLL_MS
        while self._is_running and self._inbox.poll(timeout_ms):
            timeout_ms = 0
            message = self._decoder.decode(self._inbox.recv())
            if isinstance(message, AddRequest):
                core.add(message.request)
            elif isinstance(message, AbortRequest):
                core.abort(message.request_id)
            elif isinstance(message, Shutdown):
                self._is_running = False


def exit_with_parent() -> None:
    """Ends this process as soon as standard input ends, from a thread."""
    stdin = sys.stdin.fileno()

    def watch() -> None:
        while os.read(stdin, 1):  # not the buffered reader: its lock would be held when the interpreter ends
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(folder: Path) -> int:
    """Runs the process; returns its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front end decides when to stop
    size = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "little")
    config = msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=ResolvedConfig)
    exit_with_parent()
    process = CoreProcess(folder)
    try:
        core, ready = build_core(config)
    except QanatError as error:
        process.send(StartFailed(error.code, error.message))
        process.close()
        return 1
    process.send(ready)
    process.run(core)
    process.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
