"""llguidance over a vocabulary: every spelling of a text, ends, going back, what must come, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured import guidance
from qanat.structured.budget import BudgetedMatcher
from qanat.structured.guidance import GuidanceBackend, without_forcing
from qanat.structured.library import said_by_library
from qanat.structured.vocabulary import Vocabulary
from tests.structured.vocabularies import ADDED, EOS, TOKENS, VOCABULARY, allowed, take, token

BACKEND = GuidanceBackend(VOCABULARY)


def matcher_of(**form: object) -> BudgetedMatcher:
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


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"regex": "a(?=b)"}, "regex parse error: a(?=b) ^^^ error: look-around"),
        (
            {"json": {"properties": {"q": {"type": "string", "pattern": "(?=a)b"}}}},
            "(?=a)b ^^^ error: look-around",
        ),
        ({"json": {"type": "string", "pattern": "^a{5}$", "maxLength": 2}}, "Unsatisfiable schema"),
        ({"grammar": "start: foo"}, 'unknown name: "foo"'),
        ({"regex": "x" * 2000 + "("}, "..."),
    ],
)
def test_a_refusal_says_what_is_wrong_without_the_grammar_that_was_made_of_the_form(
    form: dict[str, object], message: str
) -> None:
    with pytest.raises(StructuredOutputError) as refusal:
        matcher_of(**form)
    said = refusal.value.message
    assert message in said and len(said) < 400
    for inside in ("%llguidance", "x-guidance", "TEXT_0", "start: ", "non-verbose", " | "):
        assert inside not in said


def test_a_panic_in_the_library_is_told_as_a_form_that_is_too_complex() -> None:
    said = said_by_library("panic: index out of bounds\n  0: <backtrace>\n 1: rust_begin_unwind")
    assert said == "it is too complex; simplify the schema or grammar"


def test_a_limit_that_a_token_meets_is_told_as_such() -> None:
    properties = {f"p{i}": {"type": "string", "pattern": "^[a-z]+$"} for i in range(1000)}
    matcher = matcher_of(json={"type": "object", "properties": properties})
    with pytest.raises(StructuredOutputError, match="too complex"):
        take(matcher, '{"')


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


@pytest.mark.parametrize("options", ['{"no_forcing": false}', '{\n  "no_forcing":\n false\n}', "{}"])
def test_a_grammar_cannot_switch_forcing_on(options: str) -> None:
    grammar = f'%llguidance {options}\nstart: /[xy]/ "answer"'
    tag = {"type": "structural_tag", "format": {"type": "grammar", "grammar": grammar}}
    for form in ({"grammar": grammar}, {"structural_tag": tag}):
        matcher = matcher_of(**form)
        take(matcher, "x")
        assert allowed(matcher) == {b"a", b"answer"}
        take(matcher, "answer")


@pytest.mark.parametrize(
    "grammar",
    [
        '%llguidance {oops}\nstart: "a"',
        '%llguidance []\nstart: "a"',
        "%llguidance",
        '%llguidance {}\n%llguidance {"no_forcing": false}\nstart: "a"',
        'start: "a"\n%llguidance {"no_forcing": false}',
        'start: %lark {\n%llguidance {"no_forcing": false}\nstart: "a"\n}',
    ],
)
def test_options_anywhere_but_first_are_refused(grammar: str) -> None:
    with pytest.raises(StructuredOutputError, match="%llguidance"):
        matcher_of(grammar=grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        "start[max_tokens=2]: /a*/",
        'start[capture="]", max_tokens=2]: /a*/',
        'start[capture="\\"]", stop=\'x\']: /a*/',
        'x: /\n"/\nstart[max_tokens = 2]: /b"/',
        "start: %lark { start[temperature=2]: /a*/\n}",
        '# "\nstart[stop="a"]: /a*/ // "',
    ],
)
def test_a_rule_cannot_ask_for_what_is_no_property_of_its_text(grammar: str) -> None:
    with pytest.raises(StructuredOutputError, match="Rules cannot have"):
        matcher_of(grammar=grammar)


def test_texts_of_a_grammar_may_look_like_attributes() -> None:
    matcher = matcher_of(grammar='start: "[stop=" /max_tokens=1/ # temperature=1\n')
    take(matcher, "[stop=max_tokens=1")


def test_a_vocabulary_with_one_end_and_no_added_tokens_will_do() -> None:
    backend = GuidanceBackend(Vocabulary([*(bytes([b]) for b in range(128)), b"<end>"], [], [128]))
    matcher = backend.compile("start: /[01]/").matcher()
    words = np.zeros(5, dtype=np.int32)
    assert matcher.fill_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [ord("0"), ord("1")]
