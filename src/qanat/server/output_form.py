"""The form that an answer must have: the fields that ask for one, in OpenAI's, vLLM's and vLLM's older words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qanat.core.errors import InvalidRequestError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server.requests import GenerationRequest


@dataclass(frozen=True)
class RequestedForm:
    """A form and the request's field that asks for it."""

    field: str
    params: StructuredOutputsParams


OLDER_FIELDS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "structural_tag": "structural_tag",
}
"""Older spellings of vLLM's, each a field of the request itself, and what they mean now."""


def requested_form(request: GenerationRequest) -> RequestedForm | None:
    """The one form that a request asks for; None if it asks for none.

    Raises:
        InvalidRequestError: it asks for more than one, or in the wrong shape.
    """
    given: list[RequestedForm] = []
    response_form = request.response_format.form() if request.response_format is not None else None
    if response_form is not None:
        given.append(RequestedForm("response_format", response_form))
    if request.structured_outputs is not None:
        given.append(RequestedForm("structured_outputs", request.structured_outputs.form()))
    pattern = request.guided_whitespace_pattern
    for field, name in OLDER_FIELDS.items():
        value = getattr(request, field)
        if value is not None:
            extra: dict[str, Any] = {"whitespace_pattern": pattern} if name == "json" else {}
            given.append(RequestedForm(field, StructuredOutputsParams(**{name: value}, **extra)))
    if len(given) > 1:
        raise InvalidRequestError(
            f"{given[0].field} and {given[1].field} both say which form the answer must have; give one of them.",
            param=given[1].field,
        )
    if pattern is not None and request.guided_json is None:
        raise InvalidRequestError(
            "guided_whitespace_pattern goes with guided_json only.", param="guided_whitespace_pattern"
        )
    return given[0] if given else None
