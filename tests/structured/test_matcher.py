"""Thoughts before a form, written and taken back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.constraint import Constraint, Matcher, Thinking
from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.factory import FormFactory
from qanat.structured.guidance import GuidanceBackend
from qanat.structured.matcher import clear_bits, has_bit, set_bits
from tests.structured.vocabularies import (
    ADDED,
    END_THINK,
    EOS,
    EOT,
    THINK,
    TOKENS,
    VOCABULARY,
    allowed,
    take,
    token,
)

BLANK, BLANKS = token("\n"), token("\n\n")
FACTORY = FormFactory(lambda: VOCABULARY)
BACKEND = GuidanceBackend(VOCABULARY)
ENDS = {b"<|im_end|>", b"<|endoftext|>"}


def gate(thinking: Thinking, regex: str = "xy") -> Matcher:
    grammar = BACKEND.grammar(StructuredOutputsParams(regex=regex))
    return FACTORY.matcher(Constraint("guidance", grammar, thinking, THINK, END_THINK, [BLANK, BLANKS]))


def test_without_thinking_the_form_begins_at_once() -> None:
    assert allowed(gate(Thinking.NONE)) == {b"x"}


def test_open_thoughts_are_free_but_for_an_end_of_the_output() -> None:
    matcher = gate(Thinking.OPEN)
    assert allowed(matcher) == set(TOKENS) - ENDS
    take(matcher, "xy } whatever")
    matcher.consume(token("<tool_call>"))
    assert allowed(matcher) == set(TOKENS) - ENDS
    matcher.consume(END_THINK)
    assert allowed(matcher) == {b"x", b"\n", b"\n\n"}
    take(matcher, "x")
    assert allowed(matcher) == {b"y"}


def test_a_call_ends_thoughts_where_the_form_begins_with_one() -> None:
    call = token("<tool_call>")
    grammar = BACKEND.grammar(
        StructuredOutputsParams(
            structural_tag={
                "type": "structural_tag",
                "format": {
                    "type": "tag",
                    "begin": "<tool_call>",
                    "content": {"type": "const_string", "value": "xy"},
                    "end": "z",
                },
            }
        )
    )
    tags = Constraint("guidance", grammar, Thinking.OPEN, THINK, END_THINK, [BLANK], call)
    matcher = FACTORY.matcher(tags)
    take(matcher, "ab")
    matcher.consume(call)
    assert allowed(matcher) == {b"x", b"xy"} & set(TOKENS)
    take(matcher, "x")
    matcher.rollback(2)
    assert allowed(matcher) == set(TOKENS) - ENDS
    matcher.consume(END_THINK)
    assert allowed(matcher) == {b"<tool_call>", b"\n"}
    text = BACKEND.grammar(StructuredOutputsParams(regex="xy"))
    matcher = FACTORY.matcher(Constraint("guidance", text, Thinking.OPEN, THINK, END_THINK, [BLANK], call))
    matcher.consume(call)
    assert allowed(matcher) == set(TOKENS) - ENDS


def test_thoughts_may_be_opened_or_left_out() -> None:
    thoughtful, brief = gate(Thinking.OPTIONAL), gate(Thinking.OPTIONAL)
    assert allowed(thoughtful) == {b"x", b"<think>"}
    thoughtful.consume(THINK)
    assert allowed(thoughtful) == set(TOKENS) - ENDS
    thoughtful.consume(END_THINK)
    thoughtful.consume(BLANKS)
    assert allowed(thoughtful) == {b"x"}
    take(brief, "x")
    assert allowed(brief) == {b"y"}
    with pytest.raises(StructuredOutputError):
        brief.consume(THINK)


def test_one_token_of_blank_lines_may_follow_and_no_more() -> None:
    matcher = gate(Thinking.OPEN)
    matcher.consume(END_THINK)
    matcher.consume(BLANK)
    assert allowed(matcher) == {b"x"}
    with pytest.raises(StructuredOutputError):
        matcher.consume(BLANK)


def test_a_blank_line_that_the_form_begins_with_is_the_forms() -> None:
    matcher = gate(Thinking.OPEN, "\nx")
    matcher.consume(END_THINK)
    matcher.consume(BLANK)
    assert allowed(matcher) == {b"x"}


def test_forced_tokens_are_those_of_the_form() -> None:
    matcher = gate(Thinking.OPEN)
    assert matcher.forced() == []
    matcher.consume(END_THINK)
    assert matcher.forced() == []
    take(matcher, "x")
    assert matcher.forced() == [ord("y")]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(Thinking)), st.data())
def test_going_back_over_thoughts_and_form_is_as_if_it_had_not_been(
    thinking: Thinking, data: st.DataObject
) -> None:
    matcher = gate(thinking, "x[ab]*\ny")
    interesting = [THINK, END_THINK, BLANK, BLANKS, *b"xaby", EOS]
    masks, taken = [allowed(matcher)], 0
    for _ in range(data.draw(st.integers(1, 30))):
        if taken and data.draw(st.integers(0, 3)) == 0:
            num_back = data.draw(st.integers(1, taken))
            matcher.rollback(num_back)
            del masks[-num_back:]
            taken -= num_back
            assert allowed(matcher) == masks[-1]
            continue
        possible = [token_id for token_id in interesting if TOKENS[token_id] in masks[-1]]
        if not possible or masks[-1] <= ENDS:
            continue
        matcher.consume(data.draw(st.sampled_from([i for i in possible if i not in (EOS, EOT)] or possible)))
        taken += 1
        masks.append(allowed(matcher))


@given(st.lists(st.integers(0, 95), unique=True), st.lists(st.integers(0, 95), unique=True))
def test_bits_of_a_mask(token_ids: list[int], cleared: list[int]) -> None:
    words = np.zeros(3, dtype=np.int32)
    set_bits(words, token_ids)
    clear_bits(words, [*cleared, 96, 200])
    left = set(token_ids) - set(cleared)
    assert [i for i in range(96) if has_bit(words, i)] == sorted(left)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == sorted(left)


def test_forms_are_compiled_once_while_somebody_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import qanat.structured.factory as factory_module

    monkeypatch.setattr(factory_module, "MAX_KEPT_FORMS", 2)
    factory = FormFactory(lambda: VOCABULARY)
    constraints = [
        Constraint("guidance", BACKEND.grammar(StructuredOutputsParams(choice=[text]))) for text in "xyz"
    ]
    held = factory.form(constraints[0])
    for constraint in constraints[1:]:
        factory.matcher(constraint)
    assert factory.known(constraints[0]) is held
    assert factory.known(constraints[1]) is not None
    factory.matcher(constraints[0])
    factory.matcher(constraints[2])
    assert factory.known(constraints[1]) is None
    assert allowed(factory.matcher(constraints[1])) == {b"y"}


def test_every_added_token_has_its_spelling() -> None:
    assert VOCABULARY.added_ids_by_text() == {text.decode(): token(text) for text in ADDED}
