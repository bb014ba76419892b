"""Calls come out as the model meant them, however its output is cut; nothing is lost, leaked or invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.server.events import ToolCallDelta
from qanat.server.tools.parser import CallFormat
from tests.server.tools.replies import (
    TEXT_TAG_TOKENIZER,
    TOKENIZER,
    Reply,
    assembler,
    byte_ids,
    events_of,
    folded,
    hermes_text,
    read,
    tool,
    xml_text,
)
from tests.support.scripted_engine import Piece, ScriptedTokenizer

HERMES, XML = CallFormat.HERMES, CallFormat.XML
FORMATS = (HERMES, XML)

words = st.text(
    st.sampled_from(["a", "b", " ", "\n", '"', "\\", "<", ">", "/", "{", "}", "é", "😊", ","]), max_size=12
)
numbers = st.one_of(st.integers(-999, 999), st.floats(allow_nan=False, allow_infinity=False, width=32))
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
keys = st.sampled_from(["s", "i", "x", "b", "o", "l", "z"])
TYPED = {
    "s": ({"type": "string"}, words),
    "i": ({"type": "integer"}, st.integers(-999, 999)),
    "x": ({"anyOf": [{"type": "number"}, {"type": "null"}]}, st.one_of(numbers, st.none())),
    "b": ({"type": ["boolean", "null"]}, st.one_of(st.booleans(), st.none())),
    "o": ({"$ref": "#/$defs/O"}, st.dictionaries(words, values, max_size=3)),
    "l": ({"type": "array"}, st.lists(values, max_size=3)),
    "z": ({"type": "string", "nullable": True}, st.one_of(words.filter(lambda w: w != "null"), st.none())),
}
SCHEMA = {
    "type": "object",
    "properties": {key: schema for key, (schema, _) in TYPED.items()},
    "$defs": {"O": {"type": "object"}},
}
TOOLS = [tool("f", SCHEMA), tool("get_weather", SCHEMA)]
typed_arguments = st.fixed_dictionaries({}, optional={key: kind for key, (_, kind) in TYPED.items()})
calls = st.tuples(st.sampled_from(["f", "get_weather"]), typed_arguments)
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def written(call_format: CallFormat, name: str, arguments: dict[str, Any]) -> str:
    return hermes_text(name, arguments) if call_format is HERMES else xml_text(name, arguments)


@pytest.mark.parametrize("call_format", FORMATS)
@settings(max_examples=60)
@given(
    before=st.sampled_from(["", "I will look.", "Two\n\nparts <x>"]),
    after=st.sampled_from(["", "\n", "\nDone."]),
    wanted=st.lists(calls, min_size=1, max_size=3),
    is_open=st.booleans(),
    token_sizes=sizes,
    steps=st.integers(1, 40),
)
def test_calls_are_the_same_under_every_cut(
    call_format: CallFormat,
    before: str,
    after: str,
    wanted: list[tuple[str, dict[str, Any]]],
    is_open: bool,
    token_sizes: list[int],
    steps: int,
) -> None:
    texts = [written(call_format, name, arguments) for name, arguments in wanted]
    output = "\n\n".join([before, "\n".join(texts)]) if before else "\n".join(texts)
    output = ("why\n</think>\n\n" if is_open else "") + output + after
    replies = []
    for each in ([1], token_sizes, [9999]):
        for step in (1, steps, 10**6):
            reader = assembler(call_format, TOOLS, is_open=is_open)
            replies.append(folded(events_of(reader, byte_ids(output, each), step=step)))
    for reply in replies:
        assert reply.parsed == wanted
        assert reply.text.split() == (before + after).split()
        assert reply.text == before or after.strip()
        assert reply.reasoning == ("why" if is_open else "")
        assert reply.finish_reason == "tool_calls"
        assert_every_token_counts(reply)


def assert_every_token_counts(reply: Reply, *, is_cut: bool = False) -> None:
    """One entry for each token, and their bytes are the text."""
    assert reply.finish is not None
    assert len(reply.tokens) + len(reply.reasoning_tokens) == reply.finish.num_output_tokens
    assert len(reply.reasoning_tokens) == reply.finish.num_reasoning_tokens
    if not is_cut:
        assert b"".join(token.text_bytes for token in reply.tokens).decode(errors="replace") == reply.text


@pytest.mark.parametrize("call_format", FORMATS)
def test_api_067_a_reply_cut_anywhere_is_a_beginning_of_the_whole(call_format: CallFormat) -> None:
    arguments = {"s": 'long "text"\n', "i": 12, "o": {"k": [1, {"z": "}"}]}, "b": True, "z": None}
    output = "Look.\n\n" + written(call_format, "f", arguments) + "\n" + written(call_format, "f", {"s": "2"})
    ids = byte_ids(output, [3])
    (_, whole), (_, second) = read(call_format, output, TOOLS).calls
    for num_tokens in range(len(ids)):
        for step in (1, 4):
            reader = assembler(call_format, TOOLS)
            reply = folded(events_of(reader, ids[:num_tokens], step=step, reason=FinishReason.LENGTH))
            assert reply.finish_reason == "length"
            for (_, full), (_, sent) in zip([(0, whole), (0, second)], reply.calls, strict=False):
                assert full.startswith(sent)
            if not reply.calls:  # what is not certain to be a call is shown as it was written
                assert output.startswith(reply.text)
            assert_every_token_counts(reply)


@pytest.mark.parametrize("call_format", FORMATS)
def test_a_call_inside_the_thinking_block_ends_it(call_format: CallFormat) -> None:
    output = "I need f.\n" + written(call_format, "f", {"i": 1})
    reply = read(call_format, output, TOOLS, is_open=True)
    assert (reply.reasoning, reply.text, reply.parsed) == ("I need f.", "", [("f", {"i": 1})])
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("call_format", FORMATS)
def test_the_end_of_a_block_that_a_call_has_ended_is_no_text(call_format: CallFormat) -> None:
    call = written(call_format, "f", {"i": 1})
    output = f"I need f.\n{call}\n</think>\n\n{call}\nDone with </think>."
    reply = read(call_format, output, TOOLS, is_open=True)
    assert (reply.reasoning, reply.text) == ("I need f.", "Done with </think>.")
    assert reply.parsed == [("f", {"i": 1})] * 2
    assert_every_token_counts(reply)


@pytest.mark.parametrize("call_format", FORMATS)
def test_a_tag_that_is_only_mentioned_leaves_the_thinking_block_open(call_format: CallFormat) -> None:
    output = "The <tool_call> tag is not needed.\n</think>\n\n42"
    reply = read(call_format, output, TOOLS, is_open=True)
    assert (reply.reasoning, reply.text) == ("The <tool_call> tag is not needed.", "42")
    assert reply.calls == [] and reply.finish_reason == "stop"


@pytest.mark.parametrize(
    "inside",
    [
        "",
        " ",
        "f(1)",
        "[]",
        "{}",
        '{"name": "f"',
        '{"name": 5, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "no object"}',
        '{"arguments": {}}',
        '{"name" "f"}',
        '{"name": "f" "arguments": {}}',
        "<function=f>\n</function>",
    ],
)
def test_malformed_json_calls_are_text(inside: str) -> None:
    output = f"See:\n<tool_call>\n{inside}\n</tool_call>\nEnd"
    if inside == '{"name": "f"':  # only the last bracket is missing
        assert read(HERMES, output).calls == [("f", "{}")]
        return
    reply = read(HERMES, output)
    assert (reply.text, reply.calls, reply.finish_reason) == (output, [], "stop")


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "f(1)",
        "<function=>\n</function>",
        "<function=f\n</function>",
        "<function=f>\ntext\n</function>",
        "<function=f>\n<parameter=>\n1\n</parameter>\n</function>",
        '{"name": "f", "arguments": {}}',
    ],
)
def test_malformed_xml_calls_are_text(inside: str) -> None:
    output = f"See:\n<tool_call>\n{inside}\n</tool_call>\nEnd"
    reply = read(XML, output)
    assert (reply.text, reply.calls, reply.finish_reason) == (output, [], "stop")


def test_a_call_after_a_malformed_one_is_a_call() -> None:
    output = "<tool_call>\noops\n" + hermes_text("f", {"a": 1})
    reply = read(HERMES, output)
    assert reply.text == "<tool_call>\noops" and reply.parsed == [("f", {"a": 1})]


def test_a_call_that_breaks_after_its_name_shows_the_rest_as_text() -> None:
    output = "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\nnonsense\n</function>\n</tool_call>"
    reply = read(XML, output, TOOLS)
    assert reply.calls == [("f", '{"s": "a"')]
    assert reply.text.split() == ["nonsense", "</function>"] and reply.finish_reason == "stop"


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [
        ('{"arguments": {"a": "{"}, "name": "f"}', {"a": "{"}),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"name": "f", "arguments": null}', {}),
        ('{"name": "f"}', {}),
        ('{"id": [1, "x"], "name": "f", "arguments": {"a": 1}, "type": true}', {"a": 1}),
        ('{"name":"f","arguments":{"a":1}', {"a": 1}),
        ('{"name": "f", "parameters": {"a": 1}}', {"a": 1}),
        ('{"name": "f", "arguments": ""}', {}),
        (
            '{"name": "f", "arguments": {"a": "one\n\ttwo", "b": [True, None]}}',
            {"a": "one\n\ttwo", "b": [True, None]},
        ),
        (r'{"name": "f", "arguments": {"a": "C:\dir \d+ it\'s \u00e9"}}', {"a": r"C:\dir \d+ it\'s é"}),
    ],
)
def test_other_ways_to_write_a_json_call(inside: str, arguments: dict[str, Any]) -> None:
    reply = read(HERMES, f"<tool_call>{inside}</tool_call>")
    assert reply.parsed == [("f", arguments)] and reply.text == ""
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("value", [1, True, None, "s", [1, []], {"k": [1, {"z": True}]}, {}, -2.5e-3])
def test_api_038_json_arguments_arrive_whole(value: object) -> None:
    arguments = {"a": 1, "o": {"k": [1, {"z": True}]}, "e": value}
    output = hermes_text("f", arguments) + "\n" + hermes_text("g", {})
    reply = read(HERMES, output)
    assert reply.parsed == [("f", arguments), ("g", {})]
    assert (reply.text, reply.finish_reason) == ("", "tool_calls")


def test_api_039_tags_inside_json_strings_are_text() -> None:
    arguments = {"text": 'use </tool_call> or <tool_call> to end "it" \\ '}
    reply = read(HERMES, hermes_text("write", arguments))
    assert (reply.parsed, reply.text) == ([("write", arguments)], "")


def test_tags_inside_xml_values_are_text() -> None:
    arguments = {"s": "use </tool_call>, <tool_call> and <function=x>"}
    reply = read(XML, xml_text("f", arguments), TOOLS)
    assert (reply.parsed, reply.text) == ([("f", arguments)], "")


def test_api_044_text_values_stream_as_they_come() -> None:
    head, tail = "<tool_call>\n<function=f>\n<parameter=s>\n", "\n</parameter>\n</function>\n</tool_call>\n"
    value = "".join(f"line {i}\n\n" for i in range(500)) + "end"
    reader, sent = assembler(XML, TOOLS), ""
    ids = byte_ids(head + value + tail, [4])
    num_head = len(byte_ids(head, [4]))
    for number, token_id in enumerate(ids):
        for event in reader.push(GenerationEvent(token_ids=[token_id])):
            assert isinstance(event, ToolCallDelta)
            sent += event.arguments
        num_value_chars = 4 * (number - num_head)
        if 0 < num_value_chars < len(value):
            assert len(json.loads(sent + '"}')["s"]) >= num_value_chars - 8
    assert json.loads(sent) == {"s": value}


FRAGMENTS = [
    *(
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "<tool",
        "_call>",
        "</tool",
        "\n",
        " ",
        "\n\n",
        "a",
        "STOP",
    ),
    *(
        '{"name": "f"',
        '{"name": ',
        '"f"',
        ', "arguments": {',
        '"s": ',
        '"x',
        '"',
        "}",
        "}}",
        "\\",
        "[1, ",
        "]",
        "null",
    ),
    *(
        "<function=f>",
        "<function=",
        "f>",
        "</function>",
        "<parameter=s>",
        "<parameter=i>",
        "</parameter>",
        "7",
        "</par",
    ),
    *(b"\xf0\x9f", b"\x98\x8a"),
]
fragment_lists = st.lists(st.sampled_from(FRAGMENTS), max_size=25)


@pytest.mark.parametrize("call_format", FORMATS)
@pytest.mark.parametrize("tokenizer", [TOKENIZER, TEXT_TAG_TOKENIZER], ids=["ids", "text"])
@settings(max_examples=100)
@given(
    pieces=fragment_lists,
    has_head=st.booleans(),
    step=st.integers(2, 9),
    is_open=st.booleans(),
    stop=st.sampled_from([[], ["STOP"], ["\n\n"], ["a}"]]),
    max_calls=st.sampled_from([None, 1]),
    is_stopped=st.booleans(),
    min_tokens=st.integers(0, 5),
)
def test_nonsense_is_read_alike_under_every_cut_and_nothing_is_lost(
    call_format: CallFormat,
    tokenizer: ScriptedTokenizer,
    pieces: list[Piece],
    has_head: bool,
    step: int,
    is_open: bool,
    stop: list[str],
    max_calls: int | None,
    is_stopped: bool,
    min_tokens: int,
) -> None:
    head: list[Piece] = ["<tool_call>", "\n", '{"name": "f"', ', "arguments": {']
    if call_format is XML:
        head = ["<tool_call>", "\n", "<function=f>", "<parameter=s>"]
    ids = [tokenizer.piece_id(piece) for piece in ([*head, *pieces] if has_head else pieces)]
    reason = FinishReason.STOP if is_stopped else FinishReason.LENGTH
    replies = []
    for size in (1, step, 1000):
        reader = assembler(
            call_format,
            TOOLS,
            tokenizer=tokenizer,
            is_open=is_open,
            max_calls=max_calls,
            stop=stop,
            min_tokens=min_tokens,
        )
        replies.append(folded(events_of(reader, ids, step=size, reason=reason, tokenizer=tokenizer)))
    assert replies[1] == replies[0] and replies[2] == replies[0]
    reply = replies[0]
    assert_every_token_counts(reply, is_cut=bool(stop) or bool(reply.calls) and tokenizer is not TOKENIZER)
    whole = iter(tokenizer.decode(ids, skip_special_tokens=True))
    shown = "".join((reply.reasoning + reply.text).split())
    assert all(character in whole for character in shown), "text that the model did not write"
    if not reply.calls and not stop:
        hidden = "".join(tokenizer.decode(ids, skip_special_tokens=True).split())
        for tag in ("", "<think>", "</think>", "<think></think>"):
            if len(hidden) == len(shown) + len(tag):
                return
        raise AssertionError("text was lost")
