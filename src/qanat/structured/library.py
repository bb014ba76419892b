"""What only the grammar library knows of a form."""

from __future__ import annotations

import json
import re
from typing import Any

from llguidance import LLMatcher, regex_to_lark

from qanat.core.errors import StructuredOutputError
from qanat.structured.schema_branches import searching

MAX_MESSAGE_CHARS = 300

_LISTING = re.compile(r"\n *\d+ \| .*|\n<non-verbose/>.*", re.DOTALL)
"""What the library adds to a message: the grammar, which no client has written so, and what developers need."""
_PLACE = re.compile(r"^(?:at )?\d+\(\d+\): (?:failed to compile JSON schema: )?")
_INVALID_REGEX = re.compile(r'^invalid regex ".*?" \(in regex\): (?=regex parse error)', re.DOTALL)


def said_by_library(message: str) -> str:
    """A message of the library in one line, as far as it is about what the client wrote."""
    if "panic" in message or "backtrace" in message:
        return "it is too complex; simplify the schema or grammar"
    message = _INVALID_REGEX.sub("", _PLACE.sub("", _LISTING.sub("", message)))
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[:MAX_MESSAGE_CHARS] + "..."


def check_schema_source(source: str) -> None:
    """Checks that the library can make a grammar of a schema.

    Args:
        source: as `schema_text` makes it.

    Raises:
        StructuredOutputError: it cannot.
    """
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(source))
    if error:
        raise StructuredOutputError(f"The JSON schema is refused: {said_by_library(error)}")


def pattern_fault(pattern: str) -> str:
    """Why the library cannot look for a pattern within JSON texts; empty if it can."""
    schema = json.dumps({"type": "string", "pattern": pattern})
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
    return said_by_library(error) if error else ""


def leave_out_unsupported(schema: dict[str, Any]) -> None:
    """Takes from one schema, in place, what the library refuses of its text's pattern and its object's keys."""
    if "pattern" in schema and not (_is_pattern_supported(schema["pattern"])):
        del schema["pattern"]
    if schema.get("properties", {}).keys() - set(schema.get("required", [])):
        schema.pop("minProperties", None)
        schema.pop("maxProperties", None)
    patterns = schema.get("patternProperties")
    if patterns and not _is_supported({"patternProperties": dict.fromkeys(patterns, True)}):
        del schema["patternProperties"]
        schema.pop("additionalProperties", None)


def _is_pattern_supported(pattern: str) -> bool:
    """Whether texts that hold the pattern can be told, within JSON and outside."""
    bare = f"start: TEXT\nTEXT: /{regex_to_lark(searching(pattern), 'dw')}/"
    return _is_supported({"type": "string", "pattern": pattern}) and not LLMatcher.validate_grammar(bare)


def _is_supported(schema: dict[str, Any]) -> bool:
    try:
        check_schema_source(json.dumps(schema))
    except StructuredOutputError:
        return False
    return True
