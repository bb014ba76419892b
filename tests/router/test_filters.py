"""What happens to each event on its way, however the stream is cut into pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.router.body_edit import edited, withdrawn
from qanat.router.chunks import is_engine_gone
from qanat.router.filters import EventReader, StreamBroken, StreamRecomputed
from qanat.router.journal import Journal
from qanat.router.text_filter import TextFilter
from qanat.router.token_filter import TokenFilter
from qanat.router.usage_sum import UsageSum, added

HEAD = b'{"id":"chatcmpl-1","created":5,"model":"m","choices":[{"index":0,"delta":'
ROLE = b'data: %b{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n' % HEAD
TRICKY = '","token_ids":[9],"delta":{},"logprobs":null,"finish_reason":null '
STREAM = [
    ROLE.replace(b'"choices"', b'"choices"'),
    b'data: %b{"content":%b},"logprobs":null,"finish_reason":null,"token_ids":[1,2]}],"prompt_token_ids":[7]}\n\n'
    % (HEAD, json.dumps(TRICKY).encode()),
    b'data: %b{},"logprobs":null,"finish_reason":null,"token_ids":[3]}]}\n\n' % HEAD,
    b'data: %b{"content":"\xe2\x82\xac"},"logprobs":null,"finish_reason":null}]}\n\n' % HEAD,
    b'data: %b{},"logprobs":null,"finish_reason":"stop","token_ids":[4,5]}]}\n\n' % HEAD,
    b'data: {"id":"chatcmpl-1","created":5,"model":"m","choices":[],"usage":{"completion_tokens":5}}\n\n',
    b"data: [DONE]\n\n",
]
SEEN = [
    STREAM[0],
    STREAM[1].replace(b',"token_ids":[1,2]', b"").replace(b',"prompt_token_ids":[7]', b""),
    STREAM[3],
    STREAM[4].replace(b',"token_ids":[4,5]', b""),
    *STREAM[5:],
]


def through_tokens(pieces: list[bytes], **options: Any) -> tuple[bytes, Journal, int]:
    journal, sent, counted = Journal(), [], []
    events = TokenFilter(journal, "a", counted.append, **{"shows_ids": False, **options})
    reader = EventReader(events, lambda: None, sent.append, "a")
    for piece in pieces:
        reader(piece)
    return b"".join(sent), journal, sum(counted)


@given(st.lists(st.integers(0, len(b"".join(STREAM))), max_size=12))
def test_ids_are_noted_and_taken_out_however_the_stream_is_cut(places: list[int]) -> None:
    whole = b"".join(STREAM)
    edges = [0, *sorted(places), len(whole)]
    pieces = [whole[begin:end] for begin, end in zip(edges, edges[1:], strict=False) if begin < end]
    sent, journal, num_tokens = through_tokens(pieces)
    assert sent == b"".join(SEEN)
    assert journal.choices[0].token_ids == [1, 2, 3, 4, 5] and num_tokens == 5
    assert journal.prompt_token_ids == [7] and journal.is_done and journal.choices[0].is_finished


def test_a_client_that_asked_for_ids_gets_everything() -> None:
    sent, journal, _ = through_tokens(STREAM, shows_ids=True)
    assert sent == b"".join(STREAM) and journal.choices[0].token_ids == [1, 2, 3, 4, 5]


def test_what_belongs_to_tokens_that_have_not_come_is_kept_back() -> None:
    for num in range(len(STREAM)):
        sent, journal, _ = through_tokens(STREAM[:num])
        # A chunk without ids is sent with the next one that has them, or never.
        assert sent == b"".join(SEEN[: {0: 0, 1: 0, 2: 2, 3: 2, 4: 2}.get(num, num - 1)])
        assert len(journal.choices.get(0, Journal().choice(0)).token_ids) == (0, 0, 2, 3, 3, 5, 5)[num]


@given(st.integers(1, 400))
def test_an_unfinished_event_is_never_sent(num_bytes: int) -> None:
    whole = b"".join(STREAM)
    sent, _, _ = through_tokens([whole[:num_bytes]])
    assert sent == b"" or sent.endswith(b"\n\n")


def through_text(events: list[dict[str, Any]], continued: UsageSum | None = None) -> tuple[bytes, Journal]:
    journal, sent = Journal(id="first", created=1, model="m") if continued else Journal(), []
    if continued:
        journal.choice(0)
    text = TextFilter(journal, "a", lambda num: None, notes_text=True, continued=continued)
    reader = EventReader(text, lambda: None, sent.append, "a")
    try:
        for fields in events:
            reader(b"data: %b\n\n" % json.dumps(fields).encode())
    finally:
        through_text.sent = b"".join(sent)  # type: ignore[attr-defined]
    return b"".join(sent), journal


def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
    return {"id": "x", "created": 9, "model": "m", "choices": [choice]}


def test_reasoning_and_calls_are_noted_as_what_text_cannot_continue() -> None:
    for delta, name in (
        ({"reasoning": "so"}, "has_reasoning"),
        ({"reasoning_content": "so"}, "has_reasoning"),
        ({"tool_calls": [{"index": 0}]}, "has_calls"),
    ):
        _, journal = through_text([chunk({"role": "assistant", "content": ""}), chunk(delta)])
        assert getattr(journal.choices[0], name)
    _, journal = through_text([chunk({"content": "a", "tool_calls": [], "reasoning": None})])
    assert not journal.choices[0].has_calls and not journal.choices[0].has_reasoning


def test_what_a_decoder_gives_back_keeps_its_text_and_not_its_end() -> None:
    given_back = chunk({"content": "b"}, finish_reason="stop", stop_reason="recomputed")
    with pytest.raises(StreamRecomputed):
        through_text([chunk({"content": "a"}), given_back])
    sent: bytes = through_text.sent  # type: ignore[attr-defined]
    last = json.loads(sent.rstrip().rpartition(b"data: ")[2])["choices"][0]
    assert last["delta"] == {"content": "b"} and last["finish_reason"] is None and last["stop_reason"] is None


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        ({"code": "engine_dead"}, True),
        ({"code": "unavailable"}, True),
        ({"code": 500}, True),
        ({"code": 400}, False),
        ({"code": "deadline_exceeded"}, False),
        ({"code": "numeric_error"}, False),
        ("text", True),
    ],
)
def test_errors_of_engines_are_told_from_those_of_requests(error: Any, is_gone: bool) -> None:
    assert is_engine_gone(error) is is_gone
    if is_gone:
        with pytest.raises(StreamBroken):
            through_text([chunk({"content": "a"}), {"error": error}])
    else:
        sent, journal = through_text([chunk({"content": "a"}), {"error": error}])
        assert journal.is_failed and b"error" in sent


def test_usage_of_a_continued_text_counts_the_prompt_once() -> None:
    usage = {"prompt_tokens": 14, "completion_tokens": 6, "total_tokens": 20}
    end = {"id": "y", "created": 2, "model": "m", "choices": [], "usage": usage}
    sent, _ = through_text([chunk({"role": "assistant", "content": ""}), end], UsageSum(4))
    total = json.loads(sent.removeprefix(b"data: "))
    assert total["usage"] == {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    assert total["id"] == "first" and total["created"] == 1


def test_usage_of_several_prompts_adds_up_with_its_details() -> None:
    one = {"prompt_tokens": 1, "details": {"cached": 2}, "other": None}
    assert added(one, {"prompt_tokens": 3, "details": {"cached": 4}, "more": 5}) == {
        "prompt_tokens": 4,
        "details": {"cached": 6},
        "other": None,
        "more": 5,
    }


NAMES = st.sampled_from(["seed", "stream", "return_token_ids", "a", "prompt"])
VALUES = st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=3), st.lists(st.integers(), max_size=2))


@given(st.dictionaries(NAMES, VALUES), st.dictionaries(NAMES, VALUES), st.sets(NAMES), st.booleans())
def test_a_body_with_changes_says_what_it_should(
    fields: dict[str, Any], changes: dict[str, Any], out: set[str], has_space: bool
) -> None:
    body = json.dumps(fields, indent=2 if has_space else None).encode()
    given_changes = {**changes, **dict.fromkeys(out, withdrawn())}
    expected = {name: value for name, value in {**fields, **changes}.items() if name not in out}
    result = edited(b" " + body, fields, given_changes)
    assert json.loads(result) == expected
    keys = [name for name, _ in json.loads(result, object_pairs_hook=list)]
    assert len(keys) == len(set(keys))
