"""llguidance over a vocabulary: every spelling of a text, ends, going back, what must come, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured import guidance
from qanat.structured.guidance import GuidanceBackend, GuidanceMatcher, without_forcing
from qanat.structured.vocabulary import Vocabulary
from tests.structured.vocabularies import ADDED, EOS, TOKENS, VOCABULARY, allowed, take, token

BACKEND = GuidanceBackend(VOCABULARY)


def matcher_of(**form: object) -> GuidanceMatcher:
    grammar = BACKEND.grammar(StructuredOutputsParams(**form))  # type: ignore[arg-type]
    return BACKEND.compile(grammar).matcher()


def test_every_spelling_of_a_text_that_must_come_is_allowed() -> None:
    closed = {
        "properties": {"answer": {"const": True}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    for form in (
        {"json": {"type": "object"} | closed, "disable_any_whitespace": True},
        {"regex": '\\{"answer":true\\}'},
        {"choice": ['{"answer":true}']},
        {"grammar": 'start: "{\\"answer\\":true}"'},
        {"grammar": 'root ::= "{\\"answer\\":true}"'},
    ):
        matcher = matcher_of(**form)
        assert allowed(matcher) == {b"{", b'{"'}
        matcher.consume(token('{"'))
        assert allowed(matcher) == {b"a", b"answer"}
        matcher.consume(token("answer"))
        assert allowed(matcher) == {b'"', b'":'}
        matcher.consume(token('":'))
        assert allowed(matcher) == {b"t", b"true"}


def test_ends_are_allowed_where_the_form_may_end_and_nothing_else_when_it_is_over() -> None:
    matcher = matcher_of(regex="a?")
    assert allowed(matcher) == {b"a", *ADDED[:2]}
    take(matcher, "a")
    assert allowed(matcher) == set(ADDED[:2])
    matcher.consume(EOS)


def test_added_tokens_are_no_text() -> None:
    assert not allowed(matcher_of(regex="(.|\n)*")) & set(ADDED[2:])
    tagged = matcher_of(grammar='start: "a" <tool_call> "b"')
    take(tagged, "a")
    assert allowed(tagged) == {b"<tool_call>"}
    tagged.consume(token("<tool_call>"))
    assert allowed(tagged) == {b"b"}


def test_an_id_without_text_is_never_allowed() -> None:
    words = np.zeros(VOCABULARY.num_mask_words, dtype=np.int32)
    matcher_of(regex="(.|\n)*").fill_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert bits[TOKENS.index(b"")] == 0


def test_a_text_with_stray_characters_keeps_to_utf_8() -> None:
    matcher = matcher_of(regex="é")
    assert allowed(matcher) == {b"\xc3"}
    matcher.consume(0xC3)
    assert allowed(matcher) == {b"\xa9"}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_going_back_is_as_if_it_had_not_been(data: st.DataObject) -> None:
    matcher = matcher_of(json={"type": "array", "items": {"enum": ["ab", 1, None]}, "maxItems": 4})
    masks = [allowed(matcher)]
    taken: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if taken and data.draw(st.booleans()):
            num_back = data.draw(st.integers(1, len(taken)))
            matcher.rollback(num_back)
            del taken[-num_back:], masks[-num_back:]
            assert allowed(matcher) == masks[-1]
            continue
        if masks[-1] <= set(ADDED):
            continue
        choices = sorted(masks[-1] - set(ADDED))
        token_id = TOKENS.index(data.draw(st.sampled_from(choices)))
        matcher.consume(token_id)
        taken.append(token_id)
        masks.append(allowed(matcher))


def test_an_end_can_be_taken_back() -> None:
    matcher = matcher_of(regex="ab+")
    take(matcher, "ab")
    matcher.consume(EOS)
    matcher.rollback(1)
    assert allowed(matcher) == {b"b", *ADDED[:2]}
    matcher.consume(EOS)
    matcher.rollback(2)
    assert allowed(matcher) == {b"b"}
    with pytest.raises(StructuredOutputError):
        matcher.consume(EOS)


def test_forced_tokens_go_as_far_as_there_is_no_choice_and_take_nothing() -> None:
    matcher = matcher_of(regex="xyz[ab]")
    assert matcher.forced() == [ord("x"), ord("y"), ord("z")]
    assert allowed(matcher) == {b"x"}
    assert matcher_of(regex="ab").forced() == [], "a and ab are two spellings"


def test_matchers_of_one_form_do_not_disturb_each_other() -> None:
    form = BACKEND.compile(BACKEND.grammar(StructuredOutputsParams(regex="xy")))
    one, other = form.matcher(), form.matcher()
    take(one, "x")
    assert (allowed(one), allowed(other)) == ({b"y"}, {b"x"})


def test_a_token_outside_the_form_is_an_error_of_that_matcher_only() -> None:
    form = BACKEND.compile(BACKEND.grammar(StructuredOutputsParams(regex="xy")))
    one, other = form.matcher(), form.matcher()
    with pytest.raises(StructuredOutputError, match="does not allow"):
        one.consume(ord("q"))
    take(other, "xy")


@pytest.mark.parametrize("grammar", ["start: nowhere", "not a grammar", "start: /(/"])
def test_a_grammar_that_cannot_be_compiled_is_refused_in_one_line(grammar: str) -> None:
    with pytest.raises(StructuredOutputError) as refusal:
        BACKEND.compile(grammar)
    assert "\n" not in refusal.value.message and len(refusal.value.message) < 500


def test_a_mask_that_takes_too_much_work_is_an_error_not_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guidance, "STEP_ITEMS", 50)
    backend = GuidanceBackend(VOCABULARY)
    ambiguous = backend.compile(without_forcing('start: e\ne: e e | "a" | "a" e | e "a"'))
    matcher = ambiguous.matcher()
    with pytest.raises(StructuredOutputError, match="too complex"):
        for _ in range(100):
            allowed(matcher)
            take(matcher, "a")


def test_options_of_a_grammar_are_kept_beside_the_one_that_is_added() -> None:
    grammar = '%llguidance {"allow_invalid_utf8": true}\nstart: "a"'
    assert '"allow_invalid_utf8": true' in without_forcing(grammar)
    assert '"no_forcing": true' in without_forcing(grammar)
    assert without_forcing(without_forcing(grammar)) == without_forcing(grammar)
    with pytest.raises(StructuredOutputError):
        without_forcing('%llguidance {oops}\nstart: "a"')


def test_a_vocabulary_with_one_end_and_no_added_tokens_will_do() -> None:
    backend = GuidanceBackend(Vocabulary([*(bytes([b]) for b in range(128)), b"<end>"], [], [128]))
    matcher = backend.compile("start: /[01]/").matcher()
    words = np.zeros(5, dtype=np.int32)
    assert matcher.fill_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [ord("0"), ord("1")]
