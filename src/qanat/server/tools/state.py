"""How far a call has come."""

from __future__ import annotations

from enum import Enum, auto


class CallState(Enum):
    """OPENING: it may still turn out to be text. OPEN: the name is certain. The others are ends.

    DONE: complete. BROKEN: it stopped being a call after its name was certain. MALFORMED: it never was one.
    """

    OPENING = auto()
    OPEN = auto()
    DONE = auto()
    BROKEN = auto()
    MALFORMED = auto()
