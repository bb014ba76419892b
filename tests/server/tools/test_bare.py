"""Calls whose opening tag the model left out: `<function=NAME>` begins them, where that cannot be anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.server.tools.parser import CallFormat
from tests.server.tools.replies import (
    TEXT_TAG_TOKENIZER,
    TOKENIZER,
    Reply,
    assembler,
    byte_ids,
    events_of,
    folded,
    tool,
)
from tests.support.scripted_engine import ScriptedTokenizer

TEXT = {"type": "object", "properties": {"s": {"type": "string"}, "i": {"type": "integer"}}}
TOOLS = [tool("f", TEXT), tool("get_weather", TEXT)]
F = "<function=f>\n<parameter=s>\nx\n</parameter>\n</function>"
CUTS = ([1], [2, 3], [5, 1, 8], [9999])


def replies(
    output: str,
    *,
    tokenizer: ScriptedTokenizer = TOKENIZER,
    call_format: CallFormat = CallFormat.XML,
    **settings_of: Any,
) -> list[Reply]:
    """The answer under every cut."""
    found = []
    for sizes in CUTS:
        for step in (1, 3, 10**6):
            reader = assembler(call_format, TOOLS, tokenizer=tokenizer, **settings_of)
            found.append(
                folded(events_of(reader, byte_ids(output, sizes, tokenizer), step=step, tokenizer=tokenizer))
            )
    return found


def assert_nothing_is_lost(reply: Reply) -> None:
    """One entry for each token; their bytes are the text, unless a call begins or ends within a token."""
    assert reply.finish is not None
    assert len(reply.tokens) + len(reply.reasoning_tokens) == reply.finish.num_output_tokens
    scored = b"".join(token.text_bytes for token in reply.tokens).decode(errors="replace")
    assert reply.calls or scored == reply.text


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TEXT_TAG_TOKENIZER])
@pytest.mark.parametrize("before", ["", "I will look.\n", "\n\n", "Look:\n  "])
@pytest.mark.parametrize("after", ["", "\n</tool_call>", "</tool_call>\n"])
def test_a_call_without_its_opening_tag_is_a_call(
    tokenizer: ScriptedTokenizer, before: str, after: str
) -> None:
    for reply in replies(before + F + after, tokenizer=tokenizer):
        assert reply.parsed == [("f", {"s": "x"})]
        assert reply.text.strip() == before.strip()
        assert reply.finish_reason == "tool_calls"
        assert_nothing_is_lost(reply)


@pytest.mark.parametrize(
    "between", ["\n", "\n</tool_call>\n", "</tool_call>", "\n</tool_call>\n<tool_call>\n"]
)
def test_several_calls(between: str) -> None:
    second = "<function=get_weather>\n<parameter=i>\n3\n</parameter>\n</function>\n</tool_call>"
    for reply in replies(F + between + second):
        assert reply.parsed == [("f", {"s": "x"}), ("get_weather", {"i": 3})]
        assert reply.text == ""
        assert_nothing_is_lost(reply)


@pytest.mark.parametrize(
    "output",
    [
        "Write <function=f>\n<parameter=s>\nx\n</parameter>\n</function> to call it.",
        "<function=other>\n<parameter=s>\nx\n</parameter>\n</function>",
        "<function=f> begins a call.",
        "<function=f",
        "<function=",
        "a < b\n<functions",
    ],
    ids=["within a line", "not offered", "only named", "name cut", "cut", "no call"],
)
def test_what_only_looks_like_one_is_text(output: str) -> None:
    for tokenizer in (TOKENIZER, TEXT_TAG_TOKENIZER):
        for reply in replies(output, tokenizer=tokenizer):
            assert reply.calls == []
            assert reply.text == output
            assert_nothing_is_lost(reply)


def test_thoughts_about_a_call_are_thoughts() -> None:
    for reply in replies(f"I could write\n{F}\n</think>\n\nDone.", is_open=True):
        assert reply.calls == []
        assert F in reply.reasoning
        assert reply.text == "Done."
        assert_nothing_is_lost(reply)


def test_a_value_may_hold_the_line() -> None:
    value = f"see\n<function=f>\n{TOOLS}"
    output = f"<tool_call>\n<function=f>\n<parameter=s>\n{value}\n</parameter>\n</function>\n</tool_call>"
    for reply in replies(output):
        assert reply.parsed == [("f", {"s": value})]


def test_an_answer_for_calls_in_json_is_left_alone() -> None:
    for reply in replies(F, call_format=CallFormat.HERMES):
        assert reply.calls == []
        assert reply.text == F


@settings(max_examples=80)
@given(
    pieces=st.lists(
        st.sampled_from(
            [
                "<function=f>",
                "<function=",
                "<parameter=s>",
                "</function>",
                "</tool_call>",
                "\n",
                " ",
                "x",
                "<",
            ]
        )
    ),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_no_cut_changes_an_answer(pieces: list[str], sizes: list[int]) -> None:
    output = "".join(pieces)
    for tokenizer in (TOKENIZER, TEXT_TAG_TOKENIZER):
        found = [
            folded(
                events_of(
                    assembler(CallFormat.XML, TOOLS, tokenizer=tokenizer),
                    byte_ids(output, each, tokenizer),
                    tokenizer=tokenizer,
                )
            )
            for each in ([1], sizes, [9999])
        ]
        for reply in found:
            assert (reply.text, reply.calls) == (found[0].text, found[0].calls)
            assert_nothing_is_lost(reply)
