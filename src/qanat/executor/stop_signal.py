"""SIGTERM and SIGINT as an error in the main thread, once, and never in the middle of a message."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppedError(Exception):
    """This process was told to end."""


class StopSignal:
    """Whether this process was told to end; for its main thread alone.

    What comes after the first signal changes nothing: the end is bounded by itself.
    """

    def __init__(self) -> None:
        self._is_told = False
        self._is_deferred = False

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """What runs within ends by `StoppedError` at the first signal; the process then stays deaf to more."""
        before = {number: signal.signal(number, self._take) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                # Not a handler of Python's: its interpreter gives those back to the system before it has ended.
                signal.signal(number, signal.SIG_IGN if self._is_told else handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """What runs within is not broken off; the error comes after it.

        Raises:
            StoppedError: a signal came meanwhile.
        """
        self._is_deferred = True
        was_told = self._is_told
        try:
            yield
        finally:
            self._is_deferred = False
        if self._is_told and not was_told:
            raise StoppedError

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._is_told:
            return
        self._is_told = True
        if not self._is_deferred:
            raise StoppedError
