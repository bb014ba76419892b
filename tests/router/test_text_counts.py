"""How many tokens the client of a broken stream has: as the engine counts them, whatever its chunks look like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.router.http.sse import event_data
from qanat.router.resume_text import MARK
from qanat.router.running_counts import RunningCounts
from tests.router.routing import CHAT, COMPLETIONS, routed, run
from tests.router.scripted_engine import DONE, Said, ScriptedEngine, counts, delta, scripted, text

ASKED = {"model": "m", "prompt": "p"}


def wants(fields: Any) -> dict[str, Any]:
    return fields.get("stream_options") or {}


class Vllm:
    """Says the pieces, with the counts that were asked for, and breaks where the pieces end; goes on to the limit.

    Args:
        pieces: text and how many tokens have come with it.
    """

    def __init__(self, *pieces: tuple[str, int], end: str | None = None, is_counting: bool = True) -> None:
        self.pieces = pieces
        self.end = end
        self.is_counting = is_counting
        self.num_asked = 0

    def __call__(self, fields: Any) -> Said:
        self.num_asked += 1
        is_running = self.is_counting and wants(fields).get("continuous_usage_stats") is True
        if self.num_asked == 1:
            said = [text(piece, usage=num if is_running else None) for piece, num in self.pieces]
            said[-1]["choices"][0]["finish_reason"] = self.end
            return Said(said, is_cut=True)
        limit = fields["max_tokens"]
        rest: list[Any] = [text(" B", usage=i + 1 if is_running else None) for i in range(limit)]
        rest[-1]["choices"][0]["finish_reason"] = "length"
        if wants(fields).get("include_usage"):
            rest.append({**text(""), "choices": [], "usage": counts(limit, 9 + 10 - limit)})
        return Said([*rest, DONE])


async def asked_twice(
    answer: Any, body: dict[str, Any], kind: str = "vllm", path: str = COMPLETIONS
) -> tuple[bytes, list[Any]]:
    engine = ScriptedEngine(answer, owner=kind)
    async with scripted(engine), routed(f"{engine.url},kind={kind}") as router:
        return await router.stream(path, body), engine.asked


@pytest.mark.parametrize(
    ("pieces", "num_left"),
    [
        (((" a b c", 3), (" d e", 5)), 5),
        ((("", 1), ("", 2), ("🙂", 3), ("", 4)), 7),
        (((" a", 1), ("", 2), ("", 3)), 9),
    ],
    ids=["several tokens a piece", "tokens without text", "text that is not there yet"],
)
def test_what_is_left_is_counted_in_tokens(pieces: Any, num_left: int) -> None:
    """Tokens behind the last text that the client has are computed again."""
    stream, asked = run(asked_twice(Vllm(*pieces), {**ASKED, "max_tokens": 10, "min_tokens": 9}))
    assert asked[1]["max_tokens"] == num_left and asked[1]["min_tokens"] == num_left - 1
    assert stream.count(b" B") == num_left and stream.endswith(DONE)


@pytest.mark.parametrize("kind", ["vllm", "unknown"])
def test_where_the_engine_does_not_count_every_piece_is_a_token(kind: str) -> None:
    answer = Vllm(("", 1), ("", 2), ("🙂", 3), ("", 4), is_counting=False)
    _, asked = run(asked_twice(answer, {**ASKED, "max_tokens": 10}, kind))
    assert asked[1]["max_tokens"] == 7
    assert ("stream_options" in asked[0]) is (kind == "vllm")


def test_the_client_sees_no_counts_that_it_did_not_ask_for() -> None:
    def answer(fields: Any) -> Said:
        is_running = wants(fields).get("continuous_usage_stats") is True
        said = [text(f" {i}", "stop" if i == 3 else None, usage=i if is_running else None) for i in range(4)]
        if not is_running:
            said = [{**chunk, "usage": None} for chunk in said]
        total = (
            [{**text(""), "choices": [], "usage": counts(4)}] if wants(fields).get("include_usage") else []
        )
        return Said([*said, *total, DONE])

    async def look() -> None:
        counting, plain = ScriptedEngine(answer), ScriptedEngine(answer, owner="other")
        async with scripted(counting, plain):
            async with (
                routed(f"{counting.url},kind=vllm") as one,
                routed(f"{plain.url},kind=unknown") as other,
            ):
                for options in ({}, {"include_usage": True}, {"include_usage": False}):
                    body = {**ASKED, **({"stream_options": options} if options else {})}
                    assert await one.stream(COMPLETIONS, body) == await other.stream(COMPLETIONS, body)
                    assert wants(counting.asked[-1])["continuous_usage_stats"] is True
                    assert wants(plain.asked[-1]) == options
                body = {**ASKED, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
                stream = await one.stream(COMPLETIONS, body)
                assert stream.count(b'"completion_tokens"') == 5

    run(look())


def test_a_chat_loses_the_counts_whole_and_the_text_keeps_what_looks_like_one() -> None:
    odd = ',"usage":{"a":1}'

    def answer(fields: Any) -> Said:
        first = delta(role="assistant", content="", usage=0)
        return Said([first, delta(content=odd, usage=1), delta("stop", content="}", usage=2), DONE])

    stream, _ = run(asked_twice(answer, {"messages": []}, path=CHAT))
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in stream.split(b"\n\n")[:3]]
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == ["", odd, "}"]
    assert not any("usage" in chunk for chunk in chunks)


def test_requests_that_text_cannot_continue_are_not_changed() -> None:
    def answer(fields: Any) -> Said:
        return Said([text("a", "stop"), DONE])

    for more in ({"logprobs": 1}, {"n": 2}, {"stream_options": 5}):
        _, asked = run(asked_twice(answer, {**ASKED, **more}))
        assert asked == [{**ASKED, "stream": True, **more}]


@pytest.mark.parametrize(
    "first",
    [text("", token_ids=[5]), text("", logprobs={"tokens": ["x"], "token_logprobs": [-1.0]})],
    ids=["token ids", "log-probabilities"],
)
def test_what_the_client_has_without_text_is_not_sent_again(first: dict[str, Any]) -> None:
    """Its ids or scores would come twice if the request began anew."""

    def answer(fields: Any) -> Said:
        return Said([first], is_cut=True)

    body = {**ASKED, "max_tokens": 4, "return_token_ids": True}
    stream, asked = run(asked_twice(answer, body))
    assert len(asked) == 1 and b"stream_broken" in stream and DONE not in stream


def test_a_request_without_news_begins_anew_with_its_whole_bound() -> None:
    stream, asked = run(asked_twice(Vllm(("", 1), ("", 2)), {**ASKED, "max_tokens": 10}))
    assert asked[1]["max_tokens"] == 10 and asked[1]["prompt"] == "p" and MARK not in stream


def test_counts_that_were_lost_behind_the_last_token_are_made_of_what_is_known() -> None:
    body = {**ASKED, "max_tokens": 2, "stream_options": {"include_usage": True}}
    stream, asked = run(asked_twice(Vllm((" a b", 2), end="length"), body))
    events = stream.split(b"\n\n")
    made = json.loads(events[-3].removeprefix(b"data: "))
    assert made["usage"] == counts(2) and made["choices"] == [] and made["object"] == "text_completion"
    assert (made["id"], made["created"], made["model"]) == ("c-1", 1, "m")
    assert len(asked) == 1 and stream.endswith(DONE)


def test_counts_of_the_whole_are_kept_over_a_break() -> None:
    body = {**ASKED, "max_tokens": 10, "stream_options": {"include_usage": True}}
    stream, asked = run(asked_twice(Vllm((" a b c", 3), (" d e", 5)), body))
    usage = json.loads(stream.split(b"\n\n")[-3].removeprefix(b"data: "))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (9, 10)
    assert asked[1]["prompt"] == "p a b c d e" and stream.count(MARK) == 1


texts = st.text(max_size=8) | st.sampled_from(['"usage":{}', "usage", "}", '{"usage":{"a":{}}}', "\\", '"'])
counted = st.recursive(
    st.integers(0, 9) | texts,
    lambda inner: st.dictionaries(st.sampled_from(["usage", "a", "}"]), inner, max_size=2),
    max_leaves=4,
)
fields = st.dictionaries(
    st.sampled_from(["id", "x", "choices", "usage ", "\x00"]),
    counted | st.lists(counted, max_size=2) | st.none(),
    max_size=4,
)
KINDS = {"chat": "chat.completion.chunk", "completion": "text_completion"}


@given(
    fields,
    fields,
    st.sampled_from(["chat", "completion"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : "), ("\ndata: ,", "\ndata: :\ndata:")]),
    st.sampled_from([counts(3), {}]) | st.dictionaries(st.sampled_from(["usage", "a"]), counted, max_size=3),
    st.booleans(),
)
def test_nothing_but_the_counts_is_taken_out(
    before: dict[str, Any],
    after: dict[str, Any],
    kind: str,
    separators: tuple[str, str],
    usage: dict[str, Any],
    is_escaped: bool,
) -> None:
    rest = {**{name: value for name, value in before.items() if name not in after}, **after}
    chunk = {**{name: rest[name] for name in before}, "usage": usage, **rest}
    written = json.dumps(chunk, separators=separators, ensure_ascii=is_escaped)
    if is_escaped:
        written = written.replace('"usage"', '"u\\u0073age"')
    event = f"data: {written}\n\n".encode()
    shown = event_data(RunningCounts({}).without(event, KINDS[kind]))
    assert shown is not None
    assert json.loads(shown) == (rest if kind == "chat" else {**rest, "usage": None})


def test_tool_arguments_that_hold_counts_keep_them_and_nested_counts_go_whole() -> None:
    calls = '"choices": [{"delta": {"tool_calls": [{"arguments": {"usage": {"a": 1}}}]}}]'
    counted = '"usage": {"a": {"b": {"c": {"d": 1}}}, "note": "}"}'
    for written in (f"{{{calls}, {counted}}}", f"{{{counted}, {calls}}}"):
        shown = RunningCounts({}).without(f"data: {written}\n\n".encode(), "chat.completion.chunk")
        assert calls.replace(" ", "") in shown.decode().replace(" ", "")
        assert json.loads(event_data(shown) or b"") == json.loads(f"{{{calls}}}")
