"""JSON out of what models write in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.structured.mending import JsonMender, mended

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "one\ntwo\tthree\r\x00"}', {"a": "one\ntwo\tthree\r\x00"}),
        (r'{"a": "C:\dir\users\x41 \d+ it\'s"}', {"a": r"C:\dir\users\x41 \d+ it\'s"}),
        ('{"a": "end\\\nnext"}', {"a": "end\\\nnext"}),
        (r'["\u12", "\u00e9\n"]', ["\\u12", "\u00e9\n"]),
        (r'["\\", "\"", "\\u12"]', ["\\", '"', "\\u12"]),
        ("{'a': 'b', \"c\": 'say \"x\"', 'd': 'it\\'s', 'e': \"it's\"}",
         {"a": "b", "c": 'say "x"', "d": "it's", "e": "it's"}),
        ("[True, False, None, true, false, null]", [True, False, None] * 2),
        ("['True', \"None\"]", ["True", "None"]),
    ],
)  # fmt: skip
def test_what_models_write_in_place_of_json(text: str, value: Any) -> None:
    assert json.loads(mended(text)) == value


@given(values)
def test_json_stays_as_it_is(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert mended(text) == text
        assert JsonMender().push(text) == text


@given(st.text(st.sampled_from("\"'\\u0aFTNnorue\n{[,:]} x")), st.lists(st.integers(1, 5), min_size=1))
def test_a_beginning_becomes_the_beginning_of_the_whole(text: str, sizes: list[int]) -> None:
    mender, sent, rest, turn = JsonMender("\"'"), "", text, 0
    while rest:
        size = sizes[turn % len(sizes)]
        sent, rest, turn = sent + mender.push(rest[:size]), rest[size:], turn + 1
        assert mended(text).startswith(sent)
    assert sent == mended(text)


def test_only_wanted_quotes_begin_a_text() -> None:
    assert JsonMender().push("{'a': None}") == "{'a': null}"
