"""Engines that cannot resume: a stream goes on from its text, says so once, and ends with a reason where it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qanat.router.resume_text import MARK
from tests.router.routing import CHAT, COMPLETIONS, ids_of, routed, run
from tests.router.stub_engines import SCRIPT, Fault, StubEngine, stubs

HI = [{"role": "user", "content": "hi there"}]
USAGE = {"stream_options": {"include_usage": True}}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"model": "m", "messages": HI, **USAGE}),
    "bounded chat": (
        CHAT,
        {"model": "m", "messages": HI, "max_completion_tokens": 7, "min_tokens": 5, **USAGE},
    ),
    "completion": (COMPLETIONS, {"model": "m", "prompt": "Say it: ", "max_tokens": 20, **USAGE}),
    "echo": (COMPLETIONS, {"model": "m", "prompt": "Say it: ", "max_tokens": 20, "echo": True}),
    "default length": (COMPLETIONS, {"model": "m", "prompt": ["Say it: "]}),
}


def words(*engines: StubEngine) -> list[str]:
    return [f"{engine.url},kind=vllm" for engine in engines]


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    datas = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event.startswith(b"data: {")]
    return [json.loads(data) for data in datas]


def joined(stream: bytes) -> tuple[str, int, list[str], Any]:
    """Text, how often the role was said, ends, and the usage."""
    text, roles, ends, usage = "", 0, [], None
    for chunk in chunks_of(stream):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            text += choice.get("text", "") + delta.get("content", "")
            roles += "role" in delta
            ends += [choice["finish_reason"]] if choice["finish_reason"] else []
    return text, roles, ends, usage


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("kind", ["die", "end", "error", "recompute"])
def test_a_stream_broken_anywhere_goes_on_from_its_text(name: str, kind: str) -> None:
    path, body = ASKED[name]

    async def break_everywhere() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            expected = joined(await router.stream(path, body))
            num_cuts = 0
            for cut in range(1, 12):
                for engine in (first, second):
                    engine.asked.clear()
                    engine.faults = []
                first.faults = second.faults = [Fault(kind, cut, num_bytes=cut * 20)]
                stream = await router.stream(path, body)
                if len(first.asked) + len(second.asked) == 1:
                    break
                num_cuts += 1
                assert joined(stream) == expected, (cut, stream)
                assert stream.endswith(b"data: [DONE]\n\n")
                ids, dates = ids_of(stream)
                assert len(ids) == 1 and len(dates) == 1
                has_text = bool(joined(stream.partition(MARK)[0])[0])
                assert stream.count(MARK) == (1 if has_text and MARK in stream else 0)
            assert num_cuts >= 5

    run(break_everywhere())


def test_an_end_in_the_middle_of_a_character_is_no_character() -> None:
    async def cut_inside() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            event = next(
                event for event in first._events("chatcmpl-x", {"messages": HI}) if "€".encode() in event
            )
            place = event.index("€".encode()) + 1
            first.faults = second.faults = [Fault("die", 4, num_bytes=place)]
            stream = await router.stream(CHAT, {"messages": HI})
            assert joined(stream)[0] == "".join(SCRIPT)
            assert "�" not in stream.decode()

    run(cut_inside())


def test_the_next_engine_gets_the_text_and_what_is_left_of_the_bounds() -> None:
    async def look() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults = second.faults = [Fault("die", 4)]
            body = {"messages": HI, "max_tokens": 9, "min_tokens": 2, "seed": 3}
            await router.stream(CHAT, body)
            again = max(first.asked + second.asked, key=lambda asked: len(asked.fields["messages"])).fields
            assert again["messages"] == [*HI, {"role": "assistant", "content": "".join(SCRIPT[:3])}]
            assert again["continue_final_message"] is True and again["add_generation_prompt"] is False
            assert again["max_tokens"] == 6 and again["min_tokens"] == 0 and again["seed"] == 3

    run(look())


def test_a_stall_beyond_the_idle_limit_is_a_break() -> None:
    async def stall() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second), idle_timeout_s=1.0) as router:
            first.faults = second.faults = [Fault("stall", 5)]
            stream = await router.stream(CHAT, {"messages": HI})
            assert joined(stream)[0] == "".join(SCRIPT)
            assert first.num_open + second.num_open == 0

    run(stall())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 2}, "several choices"),
        ({"logprobs": True}, "log-probabilities"),
        ({"response_format": {"type": "json_object"}}, "form"),
        ({"tools": [{}], "tool_choice": "required"}, "tool call is required"),
    ],
)
def test_what_text_cannot_continue_ends_with_an_error_that_says_why(
    fields: dict[str, Any], reason: str
) -> None:
    async def cut() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults = second.faults = [Fault("die", 5)]
            stream = await router.stream(CHAT, {"messages": HI, **fields})
            error = chunks_of(stream.replace(b'{"error"', b'{"choices":[],"error"'))[-1]["error"]
            assert error["code"] == "stream_broken" and reason in error["message"]
            assert b"[DONE]" not in stream

    run(cut())


def test_without_any_token_the_request_is_simply_sent_again() -> None:
    async def cut() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults = second.faults = [Fault("die", 1)]
            stream = await router.stream(CHAT, {"messages": HI, "n": 1, "logprobs": True})
            assert joined(stream)[:3] == ("".join(SCRIPT), 1, ["stop"])
            assert MARK not in stream

    run(cut())


def test_each_choice_has_its_role_once_when_a_stream_begins_again() -> None:
    async def cut() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            for num_events in (1, 2):
                first.faults = second.faults = [Fault("die", num_events)]
                stream = await router.stream(CHAT, {"messages": HI, "n": 2})
                roles = [
                    choice["index"]
                    for chunk in chunks_of(stream)
                    for choice in chunk["choices"]
                    if "role" in choice["delta"]
                ]
                assert sorted(roles) == [0, 1]
                assert joined(stream)[2] == ["stop", "stop"]

    run(cut())


def test_nothing_is_added_where_only_the_end_is_missing() -> None:
    async def cut() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            body = {"prompt": "Say it: ", "max_tokens": 3}
            whole = await router.stream(COMPLETIONS, body)
            last = b'"finish_reason":"length","stop_reason":null'
            first.ending = second.ending = last.replace(b'"length"', b"null")
            first.faults = second.faults = [Fault("die", 3)]
            stream = await router.stream(COMPLETIONS, body)
            assert joined(stream)[0] == joined(whole)[0]
            assert b"only the end is missing" in stream and b"[DONE]" not in stream

    run(cut())


def test_engines_that_are_not_ready_are_waited_for() -> None:
    async def restart() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults = second.faults = [Fault("die", 4), *[Fault("status", status=503)] * 8]
            stream = await router.stream(CHAT, {"messages": HI})
            assert joined(stream)[:3] == ("".join(SCRIPT), 1, ["stop"])
            assert not first.faults

    run(restart())


def test_engines_that_bring_no_token_are_not_asked_for_ever() -> None:
    async def fail() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults = second.faults = [Fault("die", 4), *[Fault("die", 0)] * 20]
            stream = await router.stream(CHAT, {"messages": HI})
            assert b"brought no token" in stream and b"[DONE]" not in stream
            assert len(first.faults) > 10

    run(fail())


def test_a_request_that_kills_every_engine_ends_although_each_sends_a_token() -> None:
    async def look() -> None:
        engines = [StubEngine(script=["a"] * 1000) for _ in range(3)]
        for engine in engines:
            engine.faults = [Fault("die", 3) for _ in range(100)]
        async with stubs(*engines), routed(*words(*engines)) as router:
            stream = await router.stream(CHAT, {"messages": [{"role": "user", "content": "hi"}]})
            assert b"stream_broken" in stream and b"[DONE]" not in stream
            assert sum(len(engine.asked) for engine in engines) <= 10

    run(look())
