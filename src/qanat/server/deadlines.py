"""The field `timeout`: one number for the whole request, or seconds for each of its parts."""

from __future__ import annotations

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.core.timeouts import Timeouts


class TimeoutParts(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Seconds from the arrival of a request; each is optional.

    Attributes:
        queue: until the first step is computed for it.
        first_token: until its first output token.
        total: until its end.
    """

    queue: float | None = None
    first_token: float | None = None
    total: float | None = None


def check_timeout(timeout: float | TimeoutParts | None) -> None:
    """Checks the field.

    Raises:
        InvalidRequestError: seconds that are not above 0; `param` names them.
    """
    for param, seconds in _parts(timeout).items():
        if seconds is not None and not seconds > 0:
            raise InvalidRequestError(f"{param} must be above 0 seconds, got {seconds}.", param=param)


def timeouts_of(timeout: float | TimeoutParts | None, default_total_s: float | None) -> Timeouts:
    """What the engine is to hold a request to.

    Args:
        timeout: the field, checked.
        default_total_s: for requests that do not say how long they may take altogether.
    """
    if isinstance(timeout, TimeoutParts):
        total_s = default_total_s if timeout.total is None else timeout.total
        return Timeouts(timeout.queue, timeout.first_token, total_s)
    return Timeouts(total_s=default_total_s if timeout is None else timeout)


def _parts(timeout: float | TimeoutParts | None) -> dict[str, float | None]:
    if isinstance(timeout, TimeoutParts):
        return {f"timeout.{name}": getattr(timeout, name) for name in timeout.__struct_fields__}
    return {"timeout": timeout}
