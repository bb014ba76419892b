"""What a model that may or must call is held to: the calls' format and schemas, and the form of the answer instead."""

from __future__ import annotations

from qanat.core.errors import InvalidRequestError, StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server.tools.choice import ToolUse
from qanat.server.tools.parser import CallFormat
from qanat.structured.tool_calls import tool_calls_tag

FORMAT_NAMES = {CallFormat.HERMES: "hermes", CallFormat.XML: "qwen3_xml"}
"""What the makers of grammars call the formats of calls."""


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
        InvalidRequestError: a call is demanded, but calls are not read.
        StructuredOutputError: a function cannot be called in this format.
    """
    if use.is_required and call_format is None:
        raise InvalidRequestError(
            "tool_choice demands a call, but this server leaves calls in the text (--tool-call-parser none).",
            param="tool_choice",
        )
    if not use.offered or call_format is None:
        return answer
    if not (use.is_required or use.is_strict or answer is not None):
        return None
    try:
        return tool_calls_tag(
            use.offered,
            FORMAT_NAMES[call_format],
            only=use.only,
            is_required=use.is_required,
            is_parallel=is_parallel and use.only is None,
            answer=None if use.is_required else answer,
        )
    except StructuredOutputError as error:
        error.param = "tools"
        raise
