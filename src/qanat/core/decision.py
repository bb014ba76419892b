"""A setting that did not come out as wished, or was derived, with its reason."""

from __future__ import annotations

import msgspec


class Decision(msgspec.Struct, frozen=True):
    """One printed decision.

    Attributes:
        field: flag or variable, as the user writes it.
        wanted: what was asked for; None where nothing was.
        got: what holds now.
        why: the reason, one sentence.
    """

    field: str
    wanted: object
    got: object
    why: str

    def __str__(self) -> str:
        wanted = "" if self.wanted is None else f" (wanted {self.wanted})"
        return f"{self.field}: {self.got}{wanted}: {self.why}"
