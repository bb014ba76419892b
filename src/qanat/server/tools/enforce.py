"""What a model that may or must call is held to: the calls' format and schemas, and the form of the answer instead."""

from __future__ import annotations

from qanat.core.errors import InvalidRequestError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server.tools.choice import ToolUse
from qanat.server.tools.parser import CallFormat


def form_with_calls(
    use: ToolUse,
    answer: StructuredOutputsParams | None,
    call_format: CallFormat | None,
    *,
    is_parallel: bool,
) -> StructuredOutputsParams | None:
    """The form of the whole output; None if it is free.

    Args:
        use: what may be called.
        answer: the form of an answer that is no call.
        call_format: how the model writes calls; None if they are text here.
        is_parallel: several calls may follow each other.

    Raises:
        InvalidRequestError: a call is demanded, which cannot be enforced.
    """
    if use.is_required:
        raise InvalidRequestError(
            "tool_choice must be auto or none in this version: a call cannot be enforced.",
            param="tool_choice",
        )
    if use.offered and call_format is not None and answer is not None:
        raise InvalidRequestError("Tools and a form of the answer exclude each other.", param="tools")
    return answer
