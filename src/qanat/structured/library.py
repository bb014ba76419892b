"""What only the grammar library knows of a form."""

from __future__ import annotations

from llguidance import LLMatcher

from qanat.core.errors import StructuredOutputError


def check_schema_source(source: str) -> None:
    """Checks that the library can make a grammar of a schema.

    Args:
        source: as `schema_text` makes it.

    Raises:
        StructuredOutputError: it cannot.
    """
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(source))
    if error:
        raise StructuredOutputError(f"The JSON schema is refused: {error}")
