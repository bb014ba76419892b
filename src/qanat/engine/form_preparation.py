"""Requests whose form is still being compiled wait here, beside the loop, until it is."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from qanat.core.constraint import Constraint
from qanat.core.errors import QanatError, QueueFullError
from qanat.core.request import Request
from qanat.core.timeouts import Deadline
from qanat.structured.factory import Form, FormFactory
from qanat.structured.threads import roomy_threads

logger = logging.getLogger(__name__)

NUM_THREADS = 2
NICENESS = 10
"""Of the threads that compile: the loop's kernels go first."""


@dataclass
class _Waiting:
    request: Request
    form: Future[Form]


class FormPreparation:
    """Has forms compiled in threads and holds them as long as their requests live. One thread calls everything.

    Args:
        factory: compiles, and hands matchers to the sampler.
        backend: what `warm_up` makes ready.
        max_waiting: requests that may wait here.
        clock: monotonic seconds, that of the requests' deadlines.
    """

    def __init__(
        self,
        factory: FormFactory,
        backend: str,
        max_waiting: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory = factory
        self._backend = backend
        self._max_waiting = max_waiting
        self._clock = clock
        self._threads = roomy_threads(NUM_THREADS, "forms", _give_way)
        self._waiting: dict[str, _Waiting] = {}
        self._running: dict[tuple[str, str], Future[Form]] = {}
        self._held: dict[str, Form] = {}
        self._is_warm = False
        self._is_shut_down = False

    @property
    def is_waiting(self) -> bool:
        """True while any request waits here."""
        return bool(self._waiting)

    @property
    def has_news(self) -> bool:
        """True if `take` would return anything."""
        if not self._waiting:
            return False
        now_s = self._clock()
        return any(one.form.done() or _late(one.request, now_s) for one in self._waiting.values())

    def hold(self, request: Request) -> bool:
        """Takes care of a request's form until `release`. False if it has to wait here for it.

        Raises:
            QueueFullError: too many wait.
        """
        if request.constraint is None:
            return True
        form = self._factory.known(request.constraint)
        if form is not None:
            self._held[request.request_id] = form
            return True
        if len(self._waiting) >= self._max_waiting:
            raise QueueFullError(
                f"{len(self._waiting)} requests wait for their forms to be compiled. Try again later."
            )
        self._waiting[request.request_id] = _Waiting(request, self._compile(request.constraint))
        return False

    def take(self) -> list[tuple[Request, QanatError | None]]:
        """Requests that need not wait any longer, in the order in which they came, with what became of their form."""
        now_s = self._clock()
        taken: list[tuple[Request, QanatError | None]] = []
        for request_id, one in list(self._waiting.items()):
            late = _late(one.request, now_s)
            if not one.form.done() and late is None:
                continue
            self._leave(request_id)
            error: QanatError | None = None
            if late is not None:
                error = late.error("its form was compiled")
            else:
                error = _error_of(one.form)
            if error is None:
                self._held[request_id] = one.form.result()
            taken.append((one.request, error))
        self._running = {key: form for key, form in self._running.items() if not form.done()}
        return taken

    def cancel(self, request_id: str) -> bool:
        """Forgets a request that waits; False if there is none."""
        return self._leave(request_id)

    def release(self, request_id: str) -> None:
        """The request has ended; its form is kept for others for a while only."""
        self._held.pop(request_id, None)

    def wait(self, timeout_s: float) -> None:
        """Returns once something has been compiled, or after the time."""
        forms = [one.form for one in self._waiting.values()]
        concurrent.futures.wait(forms, timeout_s, concurrent.futures.FIRST_COMPLETED)

    def warm_up(self) -> None:
        """Makes the grammar library ready, once; to be called when there is nothing else to do."""
        if not self._is_warm and self._factory.has_vocabulary:
            self._is_warm = True
            self._threads.submit(self._warm_up)

    def shutdown(self) -> None:
        """Compiles nothing more."""
        self._is_shut_down = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _compile(self, constraint: Constraint) -> Future[Form]:
        """Those who want the same form wait for the same compilation."""
        key = (constraint.backend, constraint.grammar)
        running = self._running.get(key)
        if running is None or running.done():
            running = self._running[key] = self._threads.submit(self._factory.form, constraint)
        return running

    def _leave(self, request_id: str) -> bool:
        """One waits no longer; a form that nobody waits for and that is not being compiled yet never will be."""
        one = self._waiting.pop(request_id, None)
        if one is None:
            return False
        if not one.form.done() and not any(other.form is one.form for other in self._waiting.values()):
            one.form.cancel()
        return True

    def _warm_up(self) -> None:
        try:
            self._factory.warm_up(self._backend)
        except Exception:
            if not self._is_shut_down:  # the interpreter that ends takes away what the library needs
                logger.exception("The grammar library could not be made ready.")


def _late(request: Request, now_s: float) -> Deadline | None:
    return next((deadline for deadline in request.deadlines if deadline.end_s <= now_s), None)


def _error_of(form: Future[Form]) -> QanatError | None:
    error = form.exception()
    if error is None or isinstance(error, QanatError):
        return error
    logger.error("A form could not be compiled.", exc_info=error)
    return QanatError("The form could not be compiled; the server's log has the details.")


def _give_way() -> None:
    with contextlib.suppress(OSError):  # where threads have no priority of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
