"""What the head and the other hosts tell each other: msgpack in the first frame, what a core says or hears in more.

The payload, in those further frames, is passed on as it is. A core is known by its life, a number that the head never
gives twice.
"""

from __future__ import annotations

import msgspec

from qanat.engine.remote.identity import HostReport


class Hello(msgspec.Struct, tag=True, frozen=True):
    """A host, first of all: who it is."""

    report: HostReport


class Welcome(msgspec.Struct, tag=True, frozen=True):
    """The head to a host: it takes part."""

    report: HostReport


class Refusal(msgspec.Struct, tag=True, frozen=True):
    """The head to a host: it does not take part, or not any more.

    Attributes:
        reason: as sentences.
        may_return: it may say hello again at once.
    """

    reason: str
    may_return: bool = False


class Beat(msgspec.Struct, tag=True, frozen=True):
    """Either to the other, every `BEAT_S`: still here."""


class Farewell(msgspec.Struct, tag=True, frozen=True):
    """Either to the other: it ends, or begins anew."""

    reason: str


class StartCore(msgspec.Struct, tag=True, frozen=True):
    """The head to a host: start a core for this replica, in place of one that there may be."""

    replica: int
    life: int


class StopCore(msgspec.Struct, tag=True, frozen=True):
    """The head to a host: end it."""

    life: int


class ForCore(msgspec.Struct, tag=True, frozen=True):
    """The head to a host: the payload is for this core."""

    life: int


class AskForStacks(msgspec.Struct, tag=True, frozen=True):
    """The head to a host: what does this core do?"""

    life: int


class CoreUp(msgspec.Struct, tag=True, frozen=True):
    """A host: the core serves; the payload is its `Ready`."""

    life: int
    pid: int
    start_s: float


class CoreSaid(msgspec.Struct, tag=True, frozen=True):
    """A host: the payload is what this core said."""

    life: int


class CoreDown(msgspec.Struct, tag=True, frozen=True):
    """A host: the core has ended, or did not start.

    Attributes:
        life: which.
        code, message: of the error.
        last_words: what it left behind, "" if nothing.
    """

    life: int
    code: str
    message: str
    last_words: str = ""


class Stacks(msgspec.Struct, tag=True, frozen=True):
    """A host: where the threads of this core are."""

    life: int
    text: str


ToHost = Welcome | Refusal | Beat | Farewell | StartCore | StopCore | ForCore | AskForStacks
FromHost = Hello | Beat | Farewell | CoreUp | CoreSaid | CoreDown | Stacks

BEAT_S = 1.0
SILENCE_S = 10.0
"""One that has said nothing for so long is taken for dead."""
JOIN_TIMEOUT_S = 60.0
"""All must have come together within this, or within --init-timeout-s if that is less."""
