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

import msgspec
import zmq

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import QanatError
from qanat.core.log_lines import write_log
from qanat.core.outputs import RequestOutput
from qanat.core.profile import ProfileReport
from qanat.engine.assembly import build_core
from qanat.engine.core import EngineCore
from qanat.engine.ending import LAST_DEEDS_S, Ending
from qanat.engine.front_ends import FrontEnds
from qanat.engine.last_words import last_words
from qanat.engine.messages import (
    FROM_CORE_SOCKET,
    LENGTH_BYTES,
    SHARED_SOCKET,
    TO_CORE_SOCKET,
    AbortRequest,
    AddRequests,
    CallReply,
    CloseFrontEnd,
    FromCore,
    OpenFrontEnd,
    Ready,
    ResetPrefixes,
    StartFailed,
    StartProfile,
    StepDone,
    StopProfile,
    ToCore,
    UseVocabulary,
    front_end_socket,
)
from qanat.engine.shared_constraints import SharedConstraints
from qanat.structured.factory import FormFactory

logger = logging.getLogger(__name__)

IDLE_POLL_MS = 1000
FORM_POLL_MS = 2
"""While a form is being compiled in another thread and there is nothing else to do."""
KEEP_POLL_MS = 10
"""While prefixes are written to the disk, one after the other, and there is nothing else to do."""
LINGER_MS = 1000


class CoreProcess:
    """Sockets and main loop around an `EngineCore`.

    Args:
        folder: of the sockets.
        forms: is told the vocabulary.
        ending: tells when this process is to end; None if it then just does.
    """

    def __init__(self, folder: Path, forms: FormFactory, ending: Ending | None = None) -> None:
        self._folder = folder
        self._ending = ending
        self._forms = forms
        self._constraints = SharedConstraints()
        self._context = zmq.Context()
        self._inbox = self._connected(zmq.PULL, TO_CORE_SOCKET)
        self._outboxes = {0: self._connected(zmq.PUSH, FROM_CORE_SOCKET)}
        self._is_shared = False
        self._front_ends = FrontEnds(lambda number, message: self.send(message, number))
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToCore)

    def send(self, message: FromCore, front_end: int = 0) -> None:
        """Queues a message for a front end that is open; never blocks."""
        self._outboxes[front_end].send(self._encoder.encode(message))

    def send_from_thread(self, message: FromCore, front_end: int) -> None:
        """Sends a message from a thread that does not run the loop: a socket belongs to one thread."""
        with self._connected(zmq.PUSH, _outbox_name(front_end)) as socket:
            socket.send(self._encoder.encode(message))

    def run(self, core: EngineCore, ready: Ready) -> None:
        """Serves until the parent is gone; returns then only where there is something left to do.

        Args:
            core: the loop.
            ready: what every front end is told first.
        """
        self.send(ready)
        if self._ending is not None:
            self._tell(core, [])  # figures of what came from the disk
        while self._ending is None or not self._ending.is_told:
            self._drain_inbox(core, ready)
            if core.has_work:
                self._tell(core, core.step())
            core.end_overdue_profile()
            core.check()

    def close(self) -> None:
        """Closes the sockets after what is queued has been sent."""
        self._context.destroy(linger=LINGER_MS)

    def _tell(self, core: EngineCore, outputs: list[RequestOutput]) -> None:
        """Tells all front ends what a step, if there was one, has brought, and the figures of now."""
        if self._front_ends.has_others:
            self._front_ends.tell(outputs, core.stats(), core.num_steps, is_last=not core.has_work)
        else:
            self.send(StepDone(outputs, core.stats(), core.num_steps))

    def _poll(self, timeout_ms: int) -> bool:
        """Waits for a message; True if there is one. The end of this process is noticed at once, too."""
        if not timeout_ms or self._ending is None:
            return bool(self._inbox.poll(timeout_ms))
        poller = zmq.Poller()
        poller.register(self._inbox, zmq.POLLIN)
        poller.register(self._ending.descriptor, zmq.POLLIN)
        return self._inbox in dict(poller.poll(timeout_ms))

    def _connected(self, kind: int, name: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.set_hwm(0)
        socket.connect(f"ipc://{self._folder / name}")
        return socket

    def _drain_inbox(self, core: EngineCore, ready: Ready) -> None:
        """Takes all messages that are there; waits for one if there is nothing else to do."""
        was_keeping = core.is_keeping
        waiting_ms = KEEP_POLL_MS if core.is_keeping else IDLE_POLL_MS
        timeout_ms = 0 if core.has_work else FORM_POLL_MS if core.is_preparing else waiting_ms
        is_idle = timeout_ms == waiting_ms
        while self._poll(timeout_ms):
            timeout_ms, is_idle = 0, False
            message = self._decoder.decode(self._inbox.recv())
            if isinstance(message, AddRequests):
                self._add(core, message)
            elif isinstance(message, AbortRequest):
                core.abort(message.request_id)
            elif isinstance(message, UseVocabulary):
                self._forms.use_vocabulary(message.read)
            elif isinstance(message, StartProfile | StopProfile | ResetPrefixes):
                self._answer(core, message)
            elif isinstance(message, OpenFrontEnd):
                self._open(message.number, core, ready)
            elif isinstance(message, CloseFrontEnd):
                self._close(message.number, core)
        if is_idle:
            core.idle()
            if was_keeping and not core.is_keeping:
                self._tell(core, [])  # figures of what lies on the disk now

    def _add(self, core: EngineCore, message: AddRequests) -> None:
        ids = (request.request_id for request in message.requests)
        if not message.front_end or self._front_ends.take(message.front_end, ids):
            for request in message.read(self._constraints.shared):
                core.add(request)

    def _open(self, number: int, core: EngineCore, ready: Ready) -> None:
        if not self._is_shared:
            self._is_shared = True
            self._inbox.bind(f"ipc://{self._folder / SHARED_SOCKET}")
        self._outboxes[number] = self._connected(zmq.PUSH, _outbox_name(number))
        self._front_ends.open(number)
        self.send(ready, number)
        self.send(StepDone([], core.stats(), core.num_steps), number)  # figures of before it came

    def _close(self, number: int, core: EngineCore) -> None:
        for request_id in self._front_ends.close(number):
            core.abort(request_id)
        if outbox := self._outboxes.pop(number, None):
            outbox.close(linger=0)

    def _answer(self, core: EngineCore, message: StartProfile | StopProfile | ResetPrefixes) -> None:
        call_id, front_end = message.call_id, message.front_end
        if not self._front_ends.is_open(front_end):
            return

        def report(outcome: ProfileReport | QanatError) -> None:
            reply = (
                CallReply(call_id, None, outcome.code, outcome.message)
                if isinstance(outcome, QanatError)
                else CallReply(call_id, outcome)
            )
            self.send_from_thread(reply, front_end)

        try:
            if isinstance(message, StartProfile):
                core.start_profile()
                self.send(CallReply(call_id), front_end)
            elif isinstance(message, ResetPrefixes):
                core.reset_prefixes()
                self.send(CallReply(call_id), front_end)
                self._tell(core, [])
            else:
                core.stop_profile(report)
        except QanatError as error:
            self.send(CallReply(call_id, None, error.code, error.message), front_end)


def _outbox_name(front_end: int) -> str:
    return front_end_socket(front_end) if front_end else FROM_CORE_SOCKET


def exit_with_parent(folder: Path, ending: Ending | None = None) -> None:
    """Ends this process, and removes the sockets' folder, as soon as standard input ends; in a thread.

    Args:
        folder: of the sockets.
        ending: what is to be told before; its last deeds are waited for.
    """
    stdin = sys.stdin.fileno()

    def watch() -> None:
        while os.read(stdin, 1):  # not the buffered reader: its lock would be held when the interpreter ends
            pass
        shutil.rmtree(folder, ignore_errors=True)
        if ending is not None:
            ending.tell()
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
    has_deeds = config.prefix_cache is not None and config.prefix_cache.folder != ""
    ending = Ending() if has_deeds else None
    exit_with_parent(folder, ending)
    try:
        with last_words(folder):
            return serve(folder, config, ending)
    except Exception:  # it stands in the log and in the last words
        return 1


def serve(folder: Path, config: ResolvedConfig, ending: Ending | None = None) -> int:
    """Loads the model and serves until the parent is gone; returns the exit code of a start that failed."""
    forms = FormFactory()
    process = CoreProcess(folder, forms, ending)
    try:
        core, ready = build_core(config, forms)
    except QanatError as error:
        process.send(StartFailed(error.code, error.message))
        process.close()
        return 1
    logger.info("kernels:\n%s", "\n".join(ready.op_table))
    try:
        process.run(core, ready)
    finally:
        # Workers in processes of their own must not wait for a core that has failed.
        core.shutdown(LAST_DEEDS_S)
        if ending is not None:
            ending.are_deeds_done.set()
        process.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
