"""Structural tags in both spellings: what may come, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from tests.support.form_walker import FormWalker

INTEGER = {"type": "json_schema", "json_schema": {"type": "integer"}}
OBJECT = {
    "type": "json_schema",
    "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
END = "<|im_end|>"


def tagged(form: dict[str, Any], *, has_tags: bool = True) -> FormWalker:
    tag = form if "structures" in form else {"type": "structural_tag", "format": form}
    return FormWalker(StructuredOutputsParams(structural_tag=tag), has_tags=has_tags)


def tag(begin: str, content: dict[str, Any], end: str | list[str]) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def text(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def sequence(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


def either(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "or", "elements": list(elements)}


ANY = {"type": "any_text"}
CALLS = [tag("<f=x>", OBJECT, "</f>"), tag("<f=y>", INTEGER, "</f>")]

CASES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "vllm": (
        {
            "structures": [
                {"begin": "<f=x>", "schema": OBJECT["json_schema"], "end": "</f>"},
                {"begin": "<f=y>", "schema": {"type": "integer"}, "end": "</f>"},
            ],
            "triggers": ["<f="],
        },
        ["", "text", 'a <f=x>{"a": 1}</f> b <f=y>5</f>', "<f=y>5</f><f=y>-6</f>", "a <f b </f>"],
        ["<f=z>5</f>", "<f=y>a</f>", "<f=", 'x <f=x>{"b": 1}</f>'],
    ),
    "triggered": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": CALLS},
        ["", "text", "a <f=y>5</f> b"],
        ["<f=z>"],
    ),
    "at least one": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": CALLS, "at_least_one": True},
        ["<f=y>5</f>", "<f=y>5</f> b <f=y>5</f>"],
        ["", "text", "a <f=y>5</f>"],
    ),
    "stop after first": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": CALLS, "stop_after_first": True},
        ["", "text", "a <f=y>5</f>"],
        ["a <f=y>5</f> b"],
    ),
    "exactly one": (
        {
            "type": "triggered_tags",
            "triggers": ["<f="],
            "tags": CALLS,
            "stop_after_first": True,
            "at_least_one": True,
        },
        ["<f=y>5</f>"],
        ["", "a <f=y>5</f>", "<f=y>5</f> "],
    ),
    "two triggers": (
        {"type": "triggered_tags", "triggers": ["<f=", "<g>"], "tags": [*CALLS, tag("<g>", INTEGER, "")]},
        ["a <g>5", "<f=y>1</f><g>2", "<g>1 <f=y>2</f>"],
        ["<g>x"],
    ),
    "excluded": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": CALLS, "excludes": ["bad"]},
        ["good <f=y>5</f> good"],
        ["bad", "bad <f=y>5</f>", "<f=y>5</f> bad"],
    ),
    "separator": (
        {"type": "tags_with_separator", "tags": CALLS, "separator": ",\n"},
        ["", "<f=y>5</f>", '<f=y>5</f>,\n<f=x>{"a": 1}</f>'],
        ["text", "<f=y>5</f>,\n", "<f=y>5</f><f=y>5</f>"],
    ),
    "no separator": (
        {"type": "tags_with_separator", "tags": CALLS, "separator": "", "at_least_one": True},
        ["<f=y>5</f><f=y>5</f>"],
        ["", "<f=y>5</f>,<f=y>5</f>"],
    ),
    "sequence": (sequence(text("a "), INTEGER, text(" b")), ["a 5 b"], ["a 5", "5"]),
    "or": (either(text("yes"), text("yes, sir"), INTEGER), ["yes", "yes, sir", "5"], ["no", "yes,"]),
    "optional": ({"type": "optional", "content": text("ab")}, ["", "ab"], ["abab"]),
    "star": ({"type": "star", "content": text("ab")}, ["", "ab", "abab"], ["a"]),
    "plus": (sequence({"type": "plus", "content": text("ab")}, text("!")), ["ab!", "abab!"], ["!", "ab"]),
    "regex": (tag("<", {"type": "regex", "pattern": "[a-c]+/"}, ">"), ["<abc/>"], ["<d/>", "<abc>"]),
    "grammar": (
        sequence({"type": "grammar", "grammar": 'root ::= "a" b\nb ::= "(" b ")" | "x"'}, text("!")),
        ["a((x))!"],
        ["a(x!", "ax"],
    ),
    "two grammars": (
        sequence(
            {"type": "grammar", "grammar": 'root ::= a\na ::= "1" | "2"'},
            {"type": "grammar", "grammar": 'start: a\na: "3" a | "4"'},
        ),
        ["134", "24"],
        ["33", "1"],
    ),
    "any text": (ANY, ["", "anything <f= at\nall"], []),
    "any text within": (
        tag("<a>", {"type": "any_text", "excludes": ["bad"]}, ["</a>", "</b>"]),
        ["<a></a>", "<a>x\n</b>", "<a></</a>"],
        ["<a>bad</a>", "<a></a></b>", "<a>"],
    ),
    "nested": (tag("[", tag("(", sequence(text("a"), ANY), ")"), "]"), ["[(a)]", "[(a b]c)]"], ["[(a)b)]"]),
    "tags within text": (
        tag("<a>", {"type": "triggered_tags", "triggers": ["<f="], "tags": CALLS}, "</a>"),
        ["<a></a>", "<a>x <f=y>5</f> y</a>"],
        ["<a><f=z></a>", "<a>x"],
    ),
    "xml": (
        tag("<f>\n", {"type": "qwen_xml_parameter", "json_schema": OBJECT["json_schema"]}, "</f>"),
        ["<f>\n<parameter=a>\n5\n</parameter>\n</f>"],
        ["<f>\n<parameter=a>\nx\n</parameter>\n</f>", "<f>\n</f>"],
    ),
    "xml style": (
        {
            "type": "json_schema",
            "json_schema": {"properties": {"a": {"type": "string"}}},
            "style": "qwen_xml",
        },
        ["", "<parameter=a>\nx\n</parameter>\n"],
        ['{"a": "x"}'],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_format(name: str) -> None:
    form, good, wrong = CASES[name]
    walker = tagged(form)
    for output in good:
        assert walker.accepts(output), output
    for output in wrong:
        assert not walker.accepts(output), output
    for seed in range(5):
        if name not in (
            "any text within",
            "nested",
            "tags within text",
        ):  # walks seldom find the way out of free text
            assert walker.accepts(walker.random_walk(seed))


@pytest.mark.parametrize("has_tags", [True, False])
def test_a_tag_that_is_a_token_is_that_token_and_nothing_else(has_tags: bool) -> None:
    thought = sequence(tag("<think>", ANY, "\n</think>"), text("\n\n"), OBJECT)
    walker = tagged(thought, has_tags=has_tags)
    assert walker.accepts('<think>a < b\nc\n</think>\n\n{"a": 1}')
    assert not walker.accepts('<think>abc</think>\n\n{"a": 1}')
    assert walker.allowed("") == ({"<think>"} if has_tags else {"<"})
    triggered = {
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": [tag("<tool_call>", INTEGER, "</tool_call>")],
    }
    calls = tagged(triggered, has_tags=has_tags)
    assert calls.accepts("a <tool_call>5</tool_call> b<tool_call>6</tool_call>")
    assert not calls.accepts("a <tool_call>x")
    assert not calls.begins("a </tool_call>") or not has_tags


def test_free_text_before_a_token_needs_no_tag() -> None:
    form = sequence(ANY, tag("<tool_call>", INTEGER, "</tool_call>"))
    assert tagged(form).accepts("free text<tool_call>5</tool_call>")
    with pytest.raises(StructuredOutputError, match="free text"):
        tagged(form, has_tags=False)


def test_the_whole_tag_may_be_text() -> None:
    encoded = json.dumps({"type": "structural_tag", "format": text("a")})
    assert FormWalker(StructuredOutputsParams(structural_tag=encoded)).accepts("a")


def test_nothing_follows_the_end() -> None:
    assert tagged(tag("<a>", OBJECT, "</a>")).allowed('<a>{"a": 5}</a>') == {END}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"type": "token", "token": 5}, "'token' is not supported"),
        ({"type": "dispatch", "rules": []}, "'dispatch' is not supported"),
        ({"type": "repeat", "min": 1, "max": 2, "content": ANY}, "'repeat' is not supported"),
        ({"type": None}, "is not supported"),
        ({}, "is not supported"),
        ({"type": "json_schema", "json_schema": {}, "style": "glm_xml"}, "style"),
        ({"type": "json_schema", "json_schema": {}, "any_order": True}, "any_order"),
        ({"type": "json_schema", "json_schema": {"type": "objct"}}, "objct"),
        ({"type": "json_schema"}, "no schema"),
        ({"type": "const_string"}, "value"),
        ({"type": "const_string", "value": 5}, "value"),
        ({"type": "sequence", "elements": "ab"}, "elements"),
        ({"type": "sequence", "elements": [5]}, "elements"),
        ({"type": "or", "elements": []}, "elements"),
        ({"type": "regex"}, "pattern"),
        ({"type": "grammar", "grammar": 5}, "grammar"),
        ({"type": "any_text", "max_tokens": 5}, "max_"),
        ({"type": "any_text", "excludes": "a"}, "excludes"),
        ({"type": "star", "content": ANY}, "free text"),
        ({"type": "plus"}, "content"),
        (sequence(ANY, INTEGER), "free text"),
        ({"type": "triggered_tags", "triggers": [], "tags": CALLS}, "triggers"),
        ({"type": "triggered_tags", "triggers": [""], "tags": CALLS}, "triggers"),
        ({"type": "triggered_tags", "triggers": ["<g="], "tags": CALLS}, "trigger"),
        ({"type": "triggered_tags", "triggers": ["<f", "<f="], "tags": CALLS}, "exactly one trigger"),
        ({"type": "triggered_tags", "triggers": ["<f="], "tags": []}, "tags"),
        ({"type": "tags_with_separator", "tags": [ANY], "separator": ""}, "tags"),
        ({"type": "tags_with_separator", "tags": CALLS}, "separator"),
        ({"type": "tags_with_separator", "tags": CALLS, "separator": "", "at_least_one": 1}, "at_least_one"),
        (tag("<a>", ANY, [5]), "end"),
    ],
)
def test_api_056_a_wrong_format_is_refused(form: dict[str, Any], message: str) -> None:
    with pytest.raises(StructuredOutputError, match=message):
        tagged(form)


@pytest.mark.parametrize(
    "whole", ["{", "[]", "5", "{}", '{"format": 5}', '{"structures": [], "triggers": 5}', "[" * 9000]
)
def test_api_056_what_is_no_structural_tag_is_refused(whole: str) -> None:
    with pytest.raises(StructuredOutputError):
        FormWalker(StructuredOutputsParams(structural_tag=whole))


def test_depth_and_number_of_formats_are_bounded() -> None:
    deep: dict[str, Any] = text("a")
    for _ in range(60):
        deep = sequence(deep)
    with pytest.raises(StructuredOutputError, match="levels"):
        tagged(deep)
    with pytest.raises(StructuredOutputError, match="formats"):
        tagged(either(*[text(str(i)) for i in range(10_001)]))


FORMATS = st.recursive(
    st.sampled_from([text("ab"), text("<x>"), INTEGER, OBJECT, ANY, {"type": "regex", "pattern": "[xy]z"}]),
    lambda inner: st.one_of(
        st.builds(sequence, inner, inner),
        st.builds(either, inner, inner),
        st.builds(
            tag, st.sampled_from(["<a>", "<tool_call>"]), inner, st.sampled_from(["</a>", "</tool_call>", ""])
        ),
        st.builds(
            lambda kind, content: {"type": kind, "content": content},
            st.sampled_from(["optional", "star"]),
            inner,
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(FORMATS, st.booleans())
def test_any_format_is_followed_or_refused(form: dict[str, Any], has_tags: bool) -> None:
    try:
        walker = tagged(form, has_tags=has_tags)
    except StructuredOutputError:
        return
    assert walker.allowed("")
