"""How long a request may take, in parts."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.core.errors import DeadlineError

QUEUE, FIRST_TOKEN, TOTAL = "timeout.queue", "timeout.first_token", "timeout"
"""The parts, as the fields of the API are called."""


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


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of one part of a request's time.

    Attributes:
        end_s: on the clock of the request's arrival.
        param: the part.
        span_s: how long it is, as was asked for.
    """

    end_s: float
    param: str
    span_s: float

    def __str__(self) -> str:
        """For messages: the field and its value, not what clocks make of it."""
        return f"{self.param} of {self.span_s:.10g} s"

    def error(self, before: str) -> DeadlineError:
        """What ends a request that is out of time before this has happened."""
        return DeadlineError(
            f"The request's deadline passed before {before} ({self}). Allow it more time.", param=self.param
        )
