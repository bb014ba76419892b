"""One finding of `qanat doctor`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class State(enum.Enum):
    """How good it is."""

    OK = "ok"
    NOTE = "note"
    """Nothing is wrong; something could be had that is not."""
    WARNING = "warning"
    """It serves, worse than it could."""
    FAULT = "fault"
    """The engine cannot serve."""


@dataclass(frozen=True)
class Check:
    """What was found about one subject.

    Attributes:
        name: of the subject, in a few words.
        state: how good it is.
        message: what was found, in one line.
        advice: what to do; empty where there is nothing to do.
        more: further lines for people.
        facts: the same for programs; sizes are bytes.
    """

    name: str
    state: State
    message: str
    advice: str = ""
    more: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def size_text(size_bytes: int) -> str:
    """A size for people."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:,.1f} {unit}"
    return f"{size_bytes} bytes"
