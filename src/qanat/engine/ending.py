"""How the core's process learns that it is to end, where it has something to do before."""

from __future__ import annotations

import os
import threading

LAST_DEEDS_S = 5.0
"""So long it may take for that; whoever stops it waits a little longer."""
MARGIN_S = 2.0


class Ending:
    """Told once, by a thread; the loop is woken by a descriptor.

    Attributes:
        descriptor: can be read once it is told.
        are_deeds_done: set by the loop's thread when nothing is left to do.
    """

    def __init__(self) -> None:
        self.descriptor, self._writable = os.pipe()
        self._is_told = threading.Event()
        self.are_deeds_done = threading.Event()

    @property
    def is_told(self) -> bool:
        """True once the process is to end."""
        return self._is_told.is_set()

    def tell(self) -> None:
        """Tells it, and waits until the last deeds are done, but not for ever."""
        self._is_told.set()
        os.write(self._writable, b".")
        self.are_deeds_done.wait(LAST_DEEDS_S + MARGIN_S)
