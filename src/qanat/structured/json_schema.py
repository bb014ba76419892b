"""A JSON schema made ready for the grammar library."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from qanat.core.errors import StructuredOutputError

WHITESPACE = r" |\n[ \t]{0,32}"
"""Between two parts of a JSON text: at most a space, or a line's end with so much indentation."""


def json_grammar_source(
    schema: Any, *, whitespace_pattern: str | None = None, is_compact: bool = False, is_closed: bool = False
) -> str:
    """The schema as text, with what the library is to allow beside it."""
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StructuredOutputError(f"The JSON schema is no JSON: {error}.", param="json") from None
    options: dict[str, Any] = {"json_allow_general_unicode_escapes": True, "whitespace_flexible": False}
    if not is_compact:
        options["whitespace_pattern"] = whitespace_pattern or WHITESPACE
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return json.dumps({**schema, "x-guidance": options})
