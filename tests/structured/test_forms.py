"""Forms that are no schema: expressions, choices, grammars; and what all of them have in common."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.forms import grammar_of
from tests.support.form_walker import FormWalker

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
END = "<|im_end|>"


def regex(pattern: str) -> FormWalker:
    return FormWalker(StructuredOutputsParams(regex=pattern))


def grammar(source: str) -> FormWalker:
    return FormWalker(StructuredOutputsParams(grammar=source))


def choice(*texts: str) -> FormWalker:
    return FormWalker(StructuredOutputsParams(choice=list(texts)))


PATTERNS = [
    r"[a-z]{2,4}\d?",
    r"(yes|no)( sir)?",
    r"[a-z]{1,9}@[a-z0-9]{1,9}\.(com|org)",
    r"a/b\/c",
    r"^anchored$",
    r"[^\n]*\n",
    r"(?i:x)y",
    "é+",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_random_output_matches_the_expression(pattern: str) -> None:
    walker = regex(pattern)
    for seed in range(15):
        assert re.fullmatch(pattern, walker.random_walk(seed))


def test_an_expression_matches_the_whole_output() -> None:
    walker = regex("ab+")
    assert walker.accepts("abb")
    assert not walker.accepts("abbc")
    assert not walker.accepts("xab")
    assert regex("ab").allowed("ab") == {END}


def test_free_text_holds_no_token_that_is_no_text() -> None:
    walker = regex("(?s:.*)")
    assert walker.accepts("anything\nat all é 😀")
    assert not walker.begins("a<tool_call>")
    assert FormWalker(StructuredOutputsParams(regex="(?s:.*)"), has_tags=False).accepts("a<tool_call>")


WRONG_PATTERNS = ["(", "[", "a{2,1}", "(?=a)b", "(?<!a)b", r"(a)\1", r"\bx\b", "*", "a^b"]


@pytest.mark.parametrize("pattern", WRONG_PATTERNS)
def test_api_056_a_wrong_expression_is_refused(pattern: str) -> None:
    with pytest.raises(StructuredOutputError):
        regex(pattern)


@pytest.mark.parametrize("pattern", [r"[^\s\S]", r"a[^\s\S]"])
def test_an_expression_that_nothing_matches_is_refused_at_its_first_mask(pattern: str) -> None:
    with pytest.raises(StructuredOutputError, match="No text has the form"):
        regex(pattern).allowed("")


@FEW
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=5))
def test_a_choice_lets_its_texts_through_and_nothing_else(texts: list[str]) -> None:
    walker = choice(*texts)
    for text in texts:
        assert walker.accepts(text)
        assert walker.accepts(text + "x") == (text + "x" in texts)
    assert walker.random_walk(1) in texts


def test_choices_may_begin_like_each_other_or_be_empty() -> None:
    walker = choice("a", "ab", "")
    assert [text for text in ("", "a", "ab", "abc", "b") if walker.accepts(text)] == ["", "a", "ab"]
    assert walker.allowed("a") == {"b", END}
    assert walker.allowed("ab") == {END}


def test_perf_009_ten_thousand_choices_are_one_form() -> None:
    assert choice(*(f"item {i}" for i in range(10_000))).accepts("item 9999")


def test_a_choice_needs_a_text() -> None:
    with pytest.raises(StructuredOutputError, match="at least one"):
        choice()


@pytest.mark.parametrize(
    ("source", "good", "wrong"),
    [
        ('root ::= "a" [0-9]+ | b\nb ::= "x"', ["a12", "x"], ["a", "b"]),
        (
            'root ::= expr\nexpr ::= term (("+" | "-") term)*\nterm ::= "x" | "(" expr ")"',
            ["x+(x-x)"],
            ["x+", "(x"],
        ),
        ('root ::= a\n  | b\n\n# comment "\na ::= "x" # "y"\nb ::= "z"', ["x", "z"], ["y"]),
        (r'root ::= "\u0041\u00e9\U0001F600" [\x42-\x44]', ["Aé😀B"], ["Aé😀E"]),
        (r'root ::= "\"\n\\" [^\n"]*', ['"\n\\x'], ['"\n\\"']),
        ('root ::= item{2,3}\nitem ::= "x" | "yy"', ["xyy", "xxx"], ["x", "xxxx"]),
        ('root ::= "a" root | "b"', ["aab"], ["aa"]),
        ('start: "a" b\nb: /[0-9]+/ | "(" b ")"', ["a5", "a((5))"], ["a(5"]),
        ('?start: sum\nsum: NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]+/\n%ignore " "', ["1 + 22"], ["1 +"]),
        ('start: "a" %json {"type": "integer"}', ["a5"], ["ab"]),
        ('start: "x" <tool_call> "y"', ["x<tool_call>y"], ["xy"]),
        ('%llguidance {}\nstart: "a"', ["a"], ["b"]),
    ],
)
def test_grammars_in_both_notations(source: str, good: list[str], wrong: list[str]) -> None:
    walker = grammar(source)
    assert all(walker.accepts(text) for text in good)
    assert not any(walker.accepts(text) for text in wrong)
    assert walker.accepts(walker.random_walk(3))


@pytest.mark.parametrize(
    "source",
    [
        "",
        "nonsense",
        "{",
        '{"grammars": [{"lark_grammar": "start: /x*/"}]}',
        'x ::= "a"',
        "root ::= y",
        'root ::= "a',
        'root ::= "\\uD800"',
        "start: x",
        'start: "a',
        "start: /(/",
        "start: <no_such_token>",
        'start: "a" %json {"type": "objct"}',
        "root ::= " + "(" * 3000 + '"a"' + ")" * 3000,
        "start: " + "(" * 3000 + '"a"' + ")" * 3000,
    ],
)
def test_api_056_a_wrong_grammar_is_refused(source: str) -> None:
    with pytest.raises(StructuredOutputError):
        grammar(source)


@pytest.mark.parametrize("attribute", ["max_tokens=5", 'stop="b"', "temperature=0.5"])
def test_rules_of_a_grammar_speak_of_the_text_alone(attribute: str) -> None:
    with pytest.raises(StructuredOutputError, match=attribute.partition("=")[0]):
        grammar(f"start: a\na[{attribute}]: /x*/")


@FEW
@given(st.text(max_size=40) | st.text('rootsa:=|()[]{}"\\*+?#\n ', max_size=40))
def test_any_text_is_a_grammar_or_refused(source: str) -> None:
    try:
        walker = grammar(source)
    except StructuredOutputError:
        return
    assert walker.allowed("") is not None


@FEW
@given(st.text(max_size=20) | st.text("ab|()[]{}\\*+?^$.,0-9", max_size=20))
def test_any_text_is_an_expression_or_refused(pattern: str) -> None:
    try:
        walker = regex(pattern)
    except StructuredOutputError:
        return
    assert walker.allowed("") is not None


def test_the_translation_of_a_form_is_the_same_every_time() -> None:
    params = StructuredOutputsParams(json={"type": "object", "properties": {"a": {"enum": [1, 2]}}})
    assert grammar_of(params, {}.get) == grammar_of(params, {}.get)
    assert "lark_grammar" not in json.dumps(params.json)
