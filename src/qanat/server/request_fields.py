"""Fields of requests that are objects of their own: the form of the answer, and earlier output to go on with."""

from __future__ import annotations

from typing import Any

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.core.structured_outputs import StructuredOutputsParams


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


class ResumeField(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`resume`.

    Attributes:
        output_token_ids: for each choice its tokens so far; null for one that has ended, which is left out.
        prompt_token_ids: the prompt of the earlier request, where the text might be rendered differently now.
    """

    output_token_ids: list[list[int] | None]
    prompt_token_ids: list[int] | None = None
