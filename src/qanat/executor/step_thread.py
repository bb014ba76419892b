"""Where the steps of this process's worker run: in the caller's thread, or in one of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """What comes of a call: a future for one who waits, in some microseconds less than the library's.

    It is completed between two steps, when nothing of this code is in the processor's caches.
    """

    __slots__ = ("_error", "_is_open", "_value")

    def __init__(self) -> None:
        self._is_open = threading.Lock()
        self._is_open.acquire()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self, act: Callable[[], T]) -> None:
        """Makes the call; whoever asks for the result meets its exception."""
        try:
            self._value = act()
        except BaseException as error:
            self._error = error
        self._is_open.release()

    def done(self) -> bool:
        """True once `result` will not wait."""
        return not self._is_open.locked()

    def exception(self) -> BaseException | None:
        """Waits; what ended the call, None if it returned."""
        with self._is_open:
            return self._error

    def result(self) -> T:
        """Waits; what the call returned, or its exception."""
        error = self.exception()
        if error is not None:
            raise error
        return self._value  # type: ignore[return-value]  # it has been set, to None maybe


class StepThread:
    """Runs what the worker is asked for, one call after the other, in the order in which it was asked for.

    A thread of its own is worth something because the native module lets other threads run Python while it computes.
    Whatever the worker has is made and used in that thread, which keeps to the processor that it is bound to.

    Args:
        is_own: a thread beside the caller's, who may do something else meanwhile; else each call is done at once.
    """

    def __init__(self, is_own: bool) -> None:
        self._calls: SimpleQueue[tuple[Pending[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: Pending[Any] | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        if is_own:
            self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
            self._thread.start()

    @property
    def is_busy(self) -> bool:
        """True while something that was asked for is not done."""
        return self._last is not None and not self._last.done()

    def submit(self, act: Callable[[], T]) -> Pending[T]:
        """Asks for something.

        Raises:
            RuntimeError: the thread has been stopped.
        """
        if self._is_stopped:
            raise RuntimeError("the thread of the steps was stopped")
        pending: Pending[T] = Pending()
        if self._thread is None:
            pending.run(act)
        else:
            self._last = pending
            self._calls.put((pending, act))
        return pending

    def call(self, act: Callable[[], T]) -> T:
        """The same for something that is waited for, with all that was asked for before it."""
        return self.submit(act).result()

    def stop(self) -> None:
        """Ends the thread after what it has been asked for. Harmless when repeated."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            pending, act = call
            pending.run(act)
            # A batch or a worker must not live for as long as nothing else is asked for.
            del call, pending, act
