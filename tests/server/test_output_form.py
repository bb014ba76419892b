"""Every spelling of the form that an answer must have, and what is wrong with some."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server.decoding import decode_request
from qanat.server.fields import CHAT_REFUSALS, COMPLETION_REFUSALS
from qanat.server.output_form import requested_form
from qanat.server.requests import ChatRequest, CompletionRequest
from tests.server.test_errors import CHAT, COMPLETIONS, HI, refuse, still_serves
from tests.support.app_server import AppServer

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
TAG = {"structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a>"]}

FORMS: list[tuple[dict[str, Any], StructuredOutputsParams]] = [
    ({"response_format": {"type": "json_object"}}, StructuredOutputsParams(json_object=True)),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "r", "schema": SCHEMA, "strict": True},
            }
        },
        StructuredOutputsParams(json=SCHEMA),
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "r", "schema": SCHEMA, "strict": None},
            }
        },
        StructuredOutputsParams(json=SCHEMA),
    ),
    (
        {"response_format": {"type": "structural_tag", **TAG}},
        StructuredOutputsParams(structural_tag={"type": "structural_tag", **TAG}),
    ),
    ({"structured_outputs": {"json": SCHEMA}}, StructuredOutputsParams(json=SCHEMA)),
    (
        {"structured_outputs": {"regex": "a+", "disable_fallback": True, "json": None}},
        StructuredOutputsParams(regex="a+"),
    ),
    (
        {"structured_outputs": {"json_object": True, "disable_any_whitespace": True}},
        StructuredOutputsParams(json_object=True, disable_any_whitespace=True),
    ),
    ({"guided_json": SCHEMA}, StructuredOutputsParams(json=SCHEMA)),
    ({"guided_json": "{}", "guided_decoding_backend": "auto"}, StructuredOutputsParams(json="{}")),
    (
        {"guided_json": SCHEMA, "guided_whitespace_pattern": "[ ]?"},
        StructuredOutputsParams(json=SCHEMA, whitespace_pattern="[ ]?"),
    ),
    ({"guided_regex": "[0-9]"}, StructuredOutputsParams(regex="[0-9]")),
    ({"guided_choice": ["yes", "no"]}, StructuredOutputsParams(choice=["yes", "no"])),
    ({"guided_grammar": 'start: "a"'}, StructuredOutputsParams(grammar='start: "a"')),
    ({"structural_tag": TAG}, StructuredOutputsParams(structural_tag=TAG)),
    ({"guided_regex": "a", "response_format": {"type": "text"}}, StructuredOutputsParams(regex="a")),
]


@pytest.mark.parametrize(("fields", "expected"), FORMS, ids=str)
def test_each_spelling_means_one_form(fields: dict[str, Any], expected: StructuredOutputsParams) -> None:
    chat = decode_request(msgspec.json.encode({"messages": HI, **fields}), ChatRequest, CHAT_REFUSALS)
    completion = decode_request(
        msgspec.json.encode({"prompt": "x", **fields}), CompletionRequest, COMPLETION_REFUSALS
    )
    for request in (chat, completion):
        form = requested_form(request)
        assert form is not None and form.params == expected
        assert form.field in fields


@pytest.mark.parametrize(
    "fields",
    [{}, {"response_format": {"type": "text"}}, {"response_format": None, "guided_decoding_backend": "x"}],
)
def test_no_form(fields: dict[str, Any]) -> None:
    request = decode_request(msgspec.json.encode({"messages": HI, **fields}), ChatRequest, CHAT_REFUSALS)
    assert requested_form(request) is None


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "r"}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": "x"}}},
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
    ({"structured_outputs": {"regexp": "a"}}, "structured_outputs.regexp"),
    ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice[0]"),
    ({"guided_json": 5}, "guided_json"),
    ({"guided_choice": "yes"}, "guided_choice"),
    ({"guided_choice": ["a"], "guided_regex": "b"}, "guided_choice"),
    ({"guided_json": {}, "response_format": {"type": "json_object"}}, "guided_json"),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
    ),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ({"guided_regex": "a", "guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=str)
def test_wrong_forms_are_refused_by_name(server: AppServer, fields: dict[str, Any], param: str) -> None:
    refuse(server.post(CHAT, {"messages": HI, **fields}), param=param)
    refuse(server.post(COMPLETIONS, {"prompt": "x", **fields}), param=param)
    still_serves(server)
