"""The engine core in a process of its own, so that nothing the front end does can delay a step.

Started by `qanat.engine.process_client` as `python -m qanat.engine.core_process FOLDER`, with the resolved
configuration on standard input. Standard input stays open as long as the parent lives: its end is how this process
notices, at once, that it has been orphaned, and how it is told to stop.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec
import zmq

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import QanatError
from qanat.core.log_lines import write_log
from qanat.core.profile import ProfileReport
from qanat.engine.assembly import build_core
from qanat.engine.core import EngineCore
from qanat.engine.last_words import last_words
from qanat.engine.messages import (
    FROM_CORE_SOCKET,
    LENGTH_BYTES,
    TO_CORE_SOCKET,
    AbortRequest,
    AddRequests,
    FromCore,
    ProfileReply,
    StartFailed,
    StartProfile,
    StepDone,
    StopProfile,
    ToCore,
    UseVocabulary,
)
from qanat.engine.shared_constraints import SharedConstraints
from qanat.structured.factory import FormFactory

logger = logging.getLogger(__name__)

IDLE_POLL_MS = 1000
FORM_POLL_MS = 2
"""While a form is being compiled in another thread and there is nothing else to do."""
LINGER_MS = 1000


class CoreProcess:
    """Sockets and main loop around an `EngineCore`.

    Args:
        folder: of the sockets.
        forms: is told the vocabulary.
    """

    def __init__(self, folder: Path, forms: FormFactory) -> None:
        self._folder = folder
        self._forms = forms
        self._constraints = SharedConstraints()
        self._context = zmq.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._outbox = self._context.socket(zmq.PUSH)
        for socket, name in ((self._inbox, TO_CORE_SOCKET), (self._outbox, FROM_CORE_SOCKET)):
            socket.setsockopt(zmq.LINGER, LINGER_MS)
            socket.set_hwm(0)
            socket.connect(f"ipc://{folder / name}")
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToCore)

    def send(self, message: FromCore) -> None:
        """Queues a message for the front end; never blocks."""
        self._outbox.send(self._encoder.encode(message))

    def send_from_thread(self, message: FromCore) -> None:
        """Sends a message from a thread that does not run the loop: a socket belongs to one thread."""
        with self._context.socket(zmq.PUSH) as socket:
            socket.setsockopt(zmq.LINGER, LINGER_MS)
            socket.connect(f"ipc://{self._folder / FROM_CORE_SOCKET}")
            socket.send(self._encoder.encode(message))

    def run(self, core: EngineCore) -> NoReturn:
        """Serves until the parent is gone."""
        while True:
            self._drain_inbox(core)
            if core.has_work:
                outputs = core.step()
                self.send(StepDone(outputs, core.stats(), core.num_steps))
            core.end_overdue_profile()
            core.check()

    def close(self) -> None:
        """Closes the sockets after what is queued has been sent."""
        self._context.destroy(linger=LINGER_MS)

    def _drain_inbox(self, core: EngineCore) -> None:
        """Takes all messages that are there; waits for one if there is nothing else to do."""
        timeout_ms = 0 if core.has_work else FORM_POLL_MS if core.is_preparing else IDLE_POLL_MS
        is_idle = timeout_ms == IDLE_POLL_MS
        while self._inbox.poll(timeout_ms):
            timeout_ms, is_idle = 0, False
            message = self._decoder.decode(self._inbox.recv())
            if isinstance(message, AddRequests):
                for request in message.read(self._constraints.shared):
                    core.add(request)
            elif isinstance(message, AbortRequest):
                core.abort(message.request_id)
            elif isinstance(message, UseVocabulary):
                self._forms.use_vocabulary(message.read)
            elif isinstance(message, StartProfile | StopProfile):
                self._control_profile(core, message)
        if is_idle:
            core.idle()

    def _control_profile(self, core: EngineCore, message: StartProfile | StopProfile) -> None:
        call_id = message.call_id

        def report(outcome: ProfileReport | QanatError) -> None:
            if isinstance(outcome, QanatError):
                self.send_from_thread(ProfileReply(call_id, None, outcome.code, outcome.message))
            else:
                self.send_from_thread(ProfileReply(call_id, outcome))

        try:
            if isinstance(message, StartProfile):
                core.start_profile()
                self.send(ProfileReply(call_id))
            else:
                core.stop_profile(report)
        except QanatError as error:
            self.send(ProfileReply(call_id, None, error.code, error.message))


def exit_with_parent(folder: Path) -> None:
    """Ends this process, and removes the sockets' folder, as soon as standard input ends; in a thread."""
    stdin = sys.stdin.fileno()

    def watch() -> None:
        while os.read(stdin, 1):  # not the buffered reader: its lock would be held when the interpreter ends
            pass
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def read_config() -> ResolvedConfig | None:
    """The configuration from standard input; None if the parent hung up before it was there."""
    size = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "little")
    payload = sys.stdin.buffer.read(size)
    if not size or len(payload) < size:
        return None
    return msgspec.msgpack.decode(payload, type=ResolvedConfig)


def main(folder: Path, log_level: int, log_format: str) -> int:
    """Runs the process; returns its exit code."""
    write_log(log_format, log_level)
    config = read_config()
    if config is None:
        return 0
    exit_with_parent(folder)
    try:
        with last_words(folder):
            return serve(folder, config)
    except Exception:  # it stands in the log and in the last words
        return 1


def serve(folder: Path, config: ResolvedConfig) -> int:
    """Loads the model and serves until the parent is gone; returns the exit code of a start that failed."""
    forms = FormFactory()
    process = CoreProcess(folder, forms)
    try:
        core, ready = build_core(config, forms)
    except QanatError as error:
        process.send(StartFailed(error.code, error.message))
        process.close()
        return 1
    logger.info("kernels:\n%s", "\n".join(ready.op_table))
    process.send(ready)
    try:
        process.run(core)
    finally:
        core.shutdown()  # workers in processes of their own must not wait for a core that has failed
        process.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
