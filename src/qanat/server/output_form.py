"""The form that an answer must have: the fields that ask for one, in OpenAI's, vLLM's and vLLM's older words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.core.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from qanat.server.requests import GenerationRequest


class JsonSchemaFormat(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`response_format.json_schema`: the schema is followed whether strict or not; name and description are not used.

    Attributes:
        schema: a JSON schema.
        name: of the schema.
        description: of the schema.
        strict: changes nothing.
    """

    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`response_format`.

    Attributes:
        type: "text", "json_object", "json_schema", or vLLM's "structural_tag".
        json_schema: with type json_schema.
        structures: with type structural_tag, as are the two below.
        triggers: texts that a structure may begin with.
        format: in place of the two above.
    """

    type: str
    json_schema: JsonSchemaFormat | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None
    format: dict[str, Any] | None = None

    def form(self) -> StructuredOutputsParams | None:
        """What the engine is told; None for text.

        Raises:
            InvalidRequestError: an unknown type, or a part is missing.
        """
        if self.type == "text":
            return None
        if self.type == "json_object":
            return StructuredOutputsParams(json_object=True)
        if self.type == "json_schema":
            if self.json_schema is None or self.json_schema.schema is None:
                param = "response_format.json_schema" + ("" if self.json_schema is None else ".schema")
                raise InvalidRequestError(f"{param} is required with type json_schema.", param=param)
            return StructuredOutputsParams(json=self.json_schema.schema)
        if self.type == "structural_tag":
            parts = {"structures": self.structures, "triggers": self.triggers, "format": self.format}
            given = {name: value for name, value in parts.items() if value is not None}
            return StructuredOutputsParams(structural_tag={"type": self.type, **given})
        raise InvalidRequestError(
            f"response_format.type must be text, json_object, json_schema or structural_tag, got {self.type!r}.",
            param="response_format.type",
        )


class StructuredOutputsField(StructuredOutputsParams, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """vLLM's `structured_outputs`.

    Attributes:
        disable_fallback: changes nothing: a form that cannot be compiled is refused, never tried elsewhere.
    """

    disable_fallback: bool = False

    def form(self) -> StructuredOutputsParams:
        """What the engine is told."""
        names = StructuredOutputsParams.__struct_fields__
        return StructuredOutputsParams(**{name: getattr(self, name) for name in names})


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
