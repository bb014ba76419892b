from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.deploy.verify.address import read_address
from qanat.deploy.verify.checks.quality import flood, loop
from qanat.deploy.verify.events import EventReader
from qanat.deploy.verify.metrics import read_metrics
from qanat.deploy.verify.replies import MisfitError, Reply, add_chunk, read_reply
from tests.support.small_service import PROSE

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "index",
                    "text",
                    "message",
                    "delta",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "usage",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
    return [content[start:end] for start, end in zip(places, places[1:], strict=False)]


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_events_are_the_same_however_bytes_are_cut(texts: list[str], end: str, cuts: list[int]) -> None:
    content = "".join(f": note{end}data: {text}{end}{end}" for text in texts).encode()
    reader = EventReader()
    found = [event for piece in pieces(content, cuts) for event in reader.feed(piece)]
    reader.finish()
    assert found == texts
    assert reader.faults == []


def test_lines_of_an_event_are_joined() -> None:
    reader = EventReader()
    assert reader.feed(b"event: a\ndata: one\ndata:two\nid: 3\n\n") == ["one\ntwo"]
    assert reader.faults == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"data: a\n", "ended inside of an event"),
        (b"data: a\n\ndata: b", "ended inside of an event"),
        (b'{"choices": []}\n\n', "no field of an event"),
        (b"data: \xff\n\n", "not UTF-8"),
    ],
)
def test_what_is_no_event_is_told(content: bytes, said: str) -> None:
    reader = EventReader()
    reader.feed(content)
    reader.finish()
    assert said in reader.faults[0]


@given(st.binary(max_size=60))
def test_no_bytes_stop_the_reader(content: bytes) -> None:
    reader = EventReader()
    reader.feed(content)
    reader.finish()


@given(JSON, st.booleans())
def test_no_json_stops_the_reading_of_answers(value: Any, is_chat: bool) -> None:
    value = json.loads(json.dumps(value))
    for read in (
        lambda: read_reply(value, is_chat=is_chat),
        lambda: add_chunk(Reply(), value, is_chat=is_chat, seconds=0.0),
    ):
        try:
            read()
        except MisfitError as error:
            assert str(error)


def test_reasoning_under_two_names_is_counted_once() -> None:
    message = {"content": "b", "reasoning": "a", "reasoning_content": "a"}
    choice = read_reply({"choices": [{"index": 0, "message": message}]}, is_chat=True).choice
    assert (choice.reasoning, choice.reasoning_field, choice.text) == ("a", "reasoning", "b")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://localhost", "http://localhost:80"),
        ("https://10.0.0.1/v1/", "https://10.0.0.1:443"),
        ("http://[fd00::1]:8000/models/a/v1", "http://[fd00::1]:8000/models/a"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert str(read_address(text)) == address


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_told_mistake(text: str) -> None:
    for url in (text, f"http://{text}"):
        try:
            str(read_address(url)).encode("ascii")
        except ConfigError as error:
            assert error.message


def test_samples_are_summed_over_labels() -> None:
    text = '# HELP a b\na{engine="0"} 1\na{engine="1",x="} 5"} 2.5 1700000000\nb NaN\nc{} 1e2\nd\ne +Inf\n'
    assert read_metrics(text) == {"a": 3.5, "c": 100.0}


@given(st.text(max_size=80))
def test_any_text_is_read_as_metrics(text: str) -> None:
    read_metrics(text)


@pytest.mark.parametrize(
    "text", ["", "42", "yes, " * 5, PROSE, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15"]
)
def test_text_is_neither_garbage_nor_a_loop(text: str) -> None:
    assert flood(text) == "" and loop(text) == ""


@pytest.mark.parametrize("text", ["!" * 60, "ok " * 40, "Well: " + "\ufffd" * 90, "\x00\x01" * 30])
def test_garbage_is_seen(text: str) -> None:
    assert flood(text)


def test_a_loop_is_seen() -> None:
    assert "8 times" in loop(PROSE[:60] + "and then it rained again, " * 8)
    assert loop(PROSE + "and then it rained again, " * 2) == ""


@given(st.text(st.sampled_from("ab! "), max_size=120))
def test_any_text_can_be_judged(text: str) -> None:
    flood(text), loop(text)
