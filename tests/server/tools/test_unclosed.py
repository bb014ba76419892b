"""XML calls whose last value never ends: what the model wrote is not lost, whatever ends the output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.request import FinishReason
from qanat.server.tools.parser import CallFormat
from qanat.server.tools.values import is_surely_text, json_beginning
from qanat.structured.parameters import json_of
from tests.server.tools.replies import (
    TOKENIZER,
    assembler,
    events_of,
    folded,
    pieces_of,
    read,
    tool,
    xml_text,
)

XML = CallFormat.XML
SCHEMA = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "o": {"type": "object"},
        "b": {"type": "boolean"},
        "u": {"type": ["string", "number"]},
        "a": {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "boolean"}]},
    },
}
TOOLS = [tool("f", SCHEMA)]
START = "<tool_call>\n<function=f>\n"
ENDS = [
    "\n</function>\n</tool_call>",
    "</function></tool_call>",
    "\n</function>",
    "\n</function>\n</tool_call>\n",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [("s", "Oslo", "Oslo"), ("s", "a\nb </par", "a\nb </par"), ("i", "12", 12), ("o", '{"k": 1}', {"k": 1}),
     ("b", "true", True), ("u", "1.5", 1.5), ("u", "x1", "x1"), ("s", "", "")],
)  # fmt: skip
def test_a_value_without_its_end_ends_with_the_function(key: str, text: str, value: Any, end: str) -> None:
    reply = read(XML, f"I look.\n\n{START}<parameter={key}>\n{text}{end}", TOOLS)
    assert (reply.text, reply.parsed, reply.finish_reason) == ("I look.", [("f", {key: value})], "tool_calls")


def test_what_follows_such_a_call_is_text() -> None:
    reply = read(XML, f"{START}<parameter=s>\nOslo{ENDS[0]}\nDone STOP now", TOOLS, stop=["STOP"])
    assert reply.parsed == [("f", {"s": "Oslo"})]
    assert reply.text == "Done"
    assert reply.finish is not None and reply.finish.stop_reason == "STOP"


def test_the_tag_of_a_value_still_counts_first() -> None:
    value = "how: <tool_call>\n</function>\n</tool_call> is the end"
    reply = read(XML, xml_text("f", {"s": value, "i": 5}), TOOLS)
    assert reply.parsed == [("f", {"s": value, "i": 5})]
    long = "</function>" + "x" * 5000
    assert read(XML, xml_text("f", {"s": long}), TOOLS).parsed == [("f", {"s": long})]


@pytest.mark.parametrize("text", ["Oslo", "a <", "a </func", "x\n"])
def test_a_turn_that_ends_within_a_value_shows_all_of_it(text: str) -> None:
    reply = read(XML, f"{START}<parameter=s>\n{text}", TOOLS)
    assert reply.calls == [("f", '{"s": ' + json.dumps(text)[:-1])]
    assert (reply.text, reply.finish_reason) == ("", "stop")


@pytest.mark.parametrize("text", ["12", '{"k": [1, 2', "tru", "some text that is none of it"])
@pytest.mark.parametrize("key", ["i", "o", "b"])
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_values_of_other_types_show_what_there_is(key: str, text: str, reason: FinishReason) -> None:
    ids = [TOKENIZER.piece_id(piece) for piece in pieces_of(f"{START}<parameter={key}>\n{text}", 3)]
    reply = folded(events_of(assembler(XML, TOOLS), ids, reason=reason))
    assert reply.calls == [("f", f'{{"{key}": {text}')]


@settings(max_examples=150)
@given(
    values=st.dictionaries(
        st.sampled_from(list(SCHEMA["properties"])),  # type: ignore[call-overload]
        st.one_of(
            st.text(st.sampled_from('ab<>/\n 1{["t'), max_size=8),
            st.integers(-99, 99),
            st.booleans(),
            st.lists(st.integers(0, 9), max_size=2),
            st.just({"k": "v"}),
        ),
        min_size=1,
        max_size=3,
    ),
    cut=st.integers(1, 200),
    size=st.integers(1, 7),
)
def test_api_067_arguments_at_a_cut_are_a_beginning_of_the_whole(
    values: dict[str, Any], cut: int, size: int
) -> None:
    text = xml_text("f", values)
    ids = [TOKENIZER.piece_id(piece) for piece in pieces_of(text, size)]
    whole = folded(events_of(assembler(XML, TOOLS), ids))
    part = folded(events_of(assembler(XML, TOOLS), ids[:cut], reason=FinishReason.LENGTH))
    if part.calls and _is_read_as_written(values):
        assert whole.calls[0][1].startswith(part.calls[0][1])


def _is_read_as_written(values: dict[str, Any]) -> bool:
    """Values that do not fit their types become texts at their end only, so their beginnings are not known before."""
    fits = {"s": str, "i": int, "o": dict, "b": bool, "u": (str, int), "a": (str, list, bool)}
    return all(
        type(value) in (kinds if isinstance(kinds := fits[key], tuple) else (kinds,))
        and "</" not in str(value)
        for key, value in values.items()
    )


@given(
    text=st.text(st.sampled_from('tfnulre 12.-{["x'), min_size=1, max_size=6),
    rest=st.text(st.sampled_from('tfnulre 12.-{["x'), max_size=6),
    others=st.sets(st.sampled_from(["number", "integer", "boolean", "null", "object", "array"])),
)
def test_what_is_surely_text_becomes_text(text: str, rest: str, others: set[str]) -> None:
    types = frozenset(others | {"string"})
    if is_surely_text(text, types):
        assert json_of(text + rest, types).startswith('"')
    assert not is_surely_text(text, frozenset(others))


def test_beginnings_of_spellings() -> None:
    types = frozenset({"boolean", "null"})
    assert [json_beginning(text, types) for text in ("Tr", "fal", "No", "nul", "12", "")] == [
        "tr", "fal", "n", "nul", "12", "",
    ]  # fmt: skip
