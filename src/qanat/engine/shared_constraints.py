"""Constraints of requests that live, each once, however many calls have brought it."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from qanat.core.constraint import Constraint


class SharedConstraints:
    """Keeps a constraint as long as anybody else does: its grammar may be large, and arrives with every call."""

    def __init__(self) -> None:
        self._live: WeakValueDictionary[tuple[Any, ...], Constraint] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many live."""
        return len(self._live)

    def shared(self, constraint: Constraint) -> Constraint:
        """The first one that lives among those equal to this."""
        fields = (getattr(constraint, name) for name in constraint.__struct_fields__)
        key = tuple(tuple(value) if isinstance(value, list) else value for value in fields)
        return self._live.setdefault(key, constraint)
