"""The form of an output that holds tool calls: a structural tag around each function's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.lark import one_of_texts
from qanat.structured.reference_check import check_references
from qanat.structured.schema_keywords import COMBINATORS

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
_XML_NAME = re.compile(r"[^<>\n]+")


def tool_calls_tag(
    tools: Sequence[Mapping[str, Any]],
    call_format: str,
    *,
    only: str | None = None,
    is_required: bool,
    is_parallel: bool,
    answer: StructuredOutputsParams | None = None,
) -> StructuredOutputsParams:
    """The form of an output that may or must call functions.

    A required call follows its function's schema, and so does any call of a function that is `strict`. If a schema of
    one that is not cannot be followed to the letter, as much of it is as can be; a reference in it must lead somewhere.
    Where no call is required and there is no `answer`, text is free up to the first call and between calls.

    Args:
        tools: definitions in OpenAI's form.
        call_format: `hermes` or `qwen3_xml`, how the model writes calls.
        only: the one function to call.
        is_required: the output is one call or more, and nothing else.
        is_parallel: there may be several calls.
        answer: the form of an output without calls; it is then either calls or this.

    Raises:
        StructuredOutputError: a function cannot be called in this format, or its schema refers to what is not there.
    """
    wanted = [tool["function"] for tool in tools if only in (None, tool["function"]["name"])]
    tags = [_tag(function, call_format, is_held=is_required or answer is not None) for function in wanted]
    calls = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "\n",
        "at_least_one": True,
        "stop_after_first": not is_parallel,
    }
    if is_required:
        return _params(calls)
    if answer is not None:
        return _params({"type": "or", "elements": [calls, _format_of(answer)]}, answer)
    return _params(
        {"type": "triggered_tags", "triggers": [_OPEN], "tags": tags, "stop_after_first": not is_parallel}
    )


def _params(form: dict[str, Any], answer: StructuredOutputsParams | None = None) -> StructuredOutputsParams:
    options: dict[str, Any] = {}
    if answer is not None:
        names = ("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties")
        options = {name: getattr(answer, name) for name in names}
    return StructuredOutputsParams(structural_tag={"type": "structural_tag", "format": form}, **options)


def _tag(function: Mapping[str, Any], call_format: str, *, is_held: bool) -> dict[str, Any]:
    """One call of a function; without `is_held` only a strict function's schema counts."""
    name = function["name"]
    is_strict = function.get("strict") is True
    schema = _arguments_schema(function.get("parameters")) if is_strict or is_held else {"type": "object"}
    try:
        check_references(schema)
    except StructuredOutputError as error:
        raise StructuredOutputError(f"The function {name!r}: {error.message}", param="tools") from None
    content = {"json_schema": schema, "strict": is_strict, "function": name}
    if call_format == "hermes":
        begin = f'{_OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        return {
            "type": "tag",
            "begin": begin,
            "content": {"type": "json_schema", **content},
            "end": f"}}\n{_CLOSE}",
        }
    if not _XML_NAME.fullmatch(name):
        raise StructuredOutputError(
            f"The function name {name!r} cannot be written in a call; leave out <, > and lines.",
            param="tools",
        )
    begin = f"{_OPEN}\n<function={name}>\n"
    end = f"</function>\n{_CLOSE}"
    return {"type": "tag", "begin": begin, "content": {"type": "qwen_xml_parameter", **content}, "end": end}


def _arguments_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of an object; a list of parameters is all of them unless it says otherwise."""
    if parameters is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {**parameters, "type": "object"}
    if "properties" in schema and schema.keys().isdisjoint(("patternProperties", *COMBINATORS)):
        schema.setdefault("additionalProperties", False)
    return schema


def _format_of(answer: StructuredOutputsParams) -> dict[str, Any]:
    """A form as a part of a structural tag."""
    if answer.structural_tag is not None:
        return {"type": "structural_tag", "structural_tag": answer.structural_tag}
    if answer.regex is not None:
        return {"type": "regex", "pattern": answer.regex}
    if answer.grammar is not None:
        return {"type": "grammar", "grammar": answer.grammar}
    if answer.choice is not None:
        if not answer.choice:
            raise StructuredOutputError("choice needs at least one text.", param="choice")
        # An expression, as it is alone: texts that spell a token of the vocabulary stay texts.
        return {"type": "regex", "pattern": one_of_texts(answer.choice)}
    return {"type": "json_schema", "json_schema": {"type": "object"} if answer.json is None else answer.json}
