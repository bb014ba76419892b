"""How long a request may take, in parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Seconds from a request's arrival at the engine; None is no bound. Past any of them it ends with an error.

    Attributes:
        queue_s: until its first step.
        first_token_s: until its first output token.
        total_s: until its end.
    """

    queue_s: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None
