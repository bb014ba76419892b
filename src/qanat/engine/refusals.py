"""Errors with which a core refuses a request: raised to the caller as long as nothing has been generated."""

from __future__ import annotations

from qanat.core.errors import (
    ContextLengthError,
    InvalidRequestError,
    QanatError,
    QueueFullError,
    StructuredOutputError,
)
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason

REFUSALS: tuple[type[QanatError], ...] = (
    QueueFullError,
    ContextLengthError,
    InvalidRequestError,
    StructuredOutputError,
)


def refusal_of(output: RequestOutput) -> QanatError | None:
    """The refusal that this output is; None if it is anything else, other errors included."""
    if output.finish_reason is not FinishReason.ERROR:
        return None
    for kind in REFUSALS:
        if output.error_code == kind.code:
            return kind(
                output.error_message, param=output.error_param or None, retry_after_s=output.retry_after_s
            )
    return None
