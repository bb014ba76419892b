"""What form a request's output must have, as the request says it."""

from __future__ import annotations

from typing import Any

import msgspec

from qanat.core.errors import InvalidRequestError

FORM_FIELDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
"""Fields of which exactly one says the form."""


class StructuredOutputsParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One form that the output must have; the fields are those of vLLM's class of the same name.

    Attributes:
        json: a JSON schema, as an object or as text.
        json_object: any JSON object.
        regex: a regular expression that the whole output matches.
        choice: the output is one of these texts.
        grammar: a context-free grammar, in Lark or in GBNF.
        structural_tag: tags with structured contents between free text: vLLM's form with `structures` and `triggers`,
            or one with `format`.
        whitespace_pattern: what may stand between the parts of a JSON text, as a regular expression.
        disable_any_whitespace: nothing may stand there.
        disable_additional_properties: objects have only the properties that the schema names.
    """

    json: str | dict[str, Any] | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False

    def __post_init__(self) -> None:
        """Checks that there is one form.

        Raises:
            InvalidRequestError: there is none, or more than one.
        """
        named = [name for name in FORM_FIELDS if getattr(self, name) not in (None, False)]
        if len(named) != 1:
            given = " and ".join(named) or "none"
            raise InvalidRequestError(
                f"structured_outputs needs exactly one of {', '.join(FORM_FIELDS)}; given: {given}.",
                param="structured_outputs",
            )
