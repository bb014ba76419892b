"""Wishes that cannot be planned, with the nearest ones that can."""

from __future__ import annotations

from collections.abc import Iterable

from qanat.core.errors import ConfigError
from qanat.deploy.plan.wish import Wish


class ImpossibleWish(ConfigError):
    """What is asked for cannot be deployed.

    Attributes:
        why: one sentence or two, with the numbers.
        candidates: wishes that may be possible instead, nearest first; not tried yet.
        nearest: command lines of possible wishes, tried; part of the message.
    """

    def __init__(
        self,
        why: str,
        *,
        param: str | None = None,
        candidates: Iterable[Wish] = (),
        nearest: tuple[str, ...] = (),
    ) -> None:
        listed = "".join(f"\n  {command}" for command in nearest)
        super().__init__(why + (f"\nThe nearest that is possible:{listed}" if nearest else ""), param=param)
        self.why = why
        self.candidates = tuple(candidates)
        self.nearest = nearest
