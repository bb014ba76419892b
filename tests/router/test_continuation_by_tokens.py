"""Qanat's own server behind a router, its stream cut at every event: the client gets the stream that was never cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from qanat.config.engine_config import ServerOptions
from tests.router.routing import (
    CHAT,
    COMPLETIONS,
    Cut,
    comparable,
    cuttable,
    ids_of,
    routed,
    run,
)
from tests.support.app_server import AppServer, serving
from tests.support.scripted_engine import Piece

HI = [{"role": "user", "content": "hi"}]
USAGE = {"stream_options": {"include_usage": True}}
RUNNING = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
EURO = "€".encode()
WORDS: list[Piece] = ["It", " is", " €", EURO[:1], EURO[1:2], EURO[2:], " 42", ".", " Yes"]
REASONED: list[Piece] = ["<think>", "\n", "so", " so", "\n", "</think>", "\n\n", "It", " is", " 42"]
CALL: list[Piece] = [
    "Well",
    " ",
    "<tool_call>",
    "\n<function=f>\n",
    "<parameter=n>\n",
    "4",
    "2",
    "\n</parameter>\n",
    "</function>\n",
    "</tool_call>",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }
]
CASES: dict[str, tuple[str, list[Piece], dict[str, Any]]] = {
    "chat": (CHAT, WORDS, {"messages": HI}),
    "usage": (CHAT, WORDS, {"messages": HI, **USAGE}),
    "running usage": (CHAT, WORDS, {"messages": HI, **RUNNING}),
    "token ids": (CHAT, WORDS, {"messages": HI, "return_token_ids": True, **USAGE}),
    "reasoning": (CHAT, REASONED, {"messages": HI, **USAGE}),
    "hidden reasoning": (CHAT, REASONED, {"messages": HI, "include_reasoning": False, **USAGE}),
    "calls": (CHAT, CALL, {"messages": HI, "tools": TOOLS, **USAGE}),
    "stop string": (CHAT, WORDS, {"messages": HI, "stop": [" 42."], **USAGE}),
    "length": (CHAT, WORDS, {"messages": HI, "max_tokens": 5}),
    "choices": (CHAT, WORDS, {"messages": HI, "n": 2}),
    "choices and usage": (CHAT, WORDS, {"messages": HI, "n": 2, **USAGE}),
    "completion": (COMPLETIONS, WORDS, {"prompt": "ab", "max_tokens": 20, **USAGE}),
    "echo": (COMPLETIONS, WORDS, {"prompt": "ab", "max_tokens": 20, "echo": True}),
    "prompts": (COMPLETIONS, WORDS, {"prompt": ["ab", "c"], "max_tokens": 20, **USAGE}),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[AppServer]:
    with serving(ServerOptions(allow_resume=True)) as running:
        yield running
        running.wait_until_idle()


def port_of(engine: AppServer) -> int:
    port = httpx.URL(engine.url).port
    assert port is not None
    return port


def in_choices(events: list[bytes]) -> list[Any]:
    """The events of each choice in order: between choices, and between prompts, there is none."""
    lanes: dict[Any, list[Any]] = {}
    for event in events:
        text = event.removeprefix(b"data: ")
        chunk = json.loads(text) if text.startswith(b"{") else text
        choices = chunk["choices"] if isinstance(chunk, dict) else []
        lanes.setdefault(choices[0]["index"] if choices else "end", []).append(chunk)
    # Which choice ends last, and has the times, is a matter of order too.
    for lane in lanes.values():
        for chunk in lane:
            if isinstance(chunk, dict):
                chunk.pop("timing", None)
    return sorted(lanes.items(), key=str)


def direct(engine: AppServer, path: str, body: dict[str, Any]) -> bytes:
    response = engine.http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    return response.content


@pytest.mark.parametrize("name", CASES)
def test_a_stream_cut_at_any_event_is_the_stream_that_was_not_cut(engine: AppServer, name: str) -> None:
    path, pieces, body = CASES[name]
    engine.say(pieces)
    expected = comparable(direct(engine, path, body))
    has_many = "n" in body or isinstance(body.get("prompt"), list)

    async def cut_everywhere() -> None:
        async with cuttable([port_of(engine)] * 2) as roads, routed(*_words(roads)) as router:
            cut = 1
            while True:
                for road in roads:
                    road.cuts = [Cut(cut, num_bytes=cut % 3)]
                    road.bodies.clear()
                stream = await router.stream(path, body)
                events = comparable(stream)
                assert (in_choices(events) if has_many else events) == (
                    in_choices(expected) if has_many else expected
                ), cut
                ids, dates = ids_of(stream)
                assert len(ids) == 1 and len(dates) == 1, cut
                if sum(len(road.bodies) for road in roads) == 1:
                    break  # the cut fell behind the end
                cut += 1
            assert cut > len(pieces) // 2

    run(cut_everywhere())


def _words(roads: list[Any]) -> list[str]:
    return [f"{road.url},kind=qanat" for road in roads]


@pytest.mark.parametrize("how", ["abort", "end", "stall"])
def test_several_breaks_of_one_stream_are_mended(engine: AppServer, how: str) -> None:
    engine.say(WORDS)
    body = {"messages": HI, **USAGE}
    expected = comparable(direct(engine, CHAT, body))

    async def cut_often() -> None:
        async with cuttable([port_of(engine)] * 2) as roads:
            async with routed(*_words(roads), idle_timeout_s=0.5 if how == "stall" else 60.0) as router:
                for road in roads:
                    road.cuts = [Cut(2, how=how), Cut(1, how=how), Cut(2, how=how)]
                stream = await router.stream(CHAT, body)
                assert comparable(stream) == expected
                assert sum(len(road.bodies) for road in roads) >= 3

    run(cut_often())


def test_a_client_that_gave_no_seed_gets_one_that_resuming_keeps(engine: AppServer) -> None:
    engine.say(WORDS)

    async def look() -> None:
        async with cuttable([port_of(engine)] * 2) as roads, routed(*_words(roads)) as router:
            for road in roads:
                road.cuts = [Cut(3)]
            stream = await router.stream(CHAT, {"messages": HI, "temperature": 1})
            bodies = [json.loads(body) for road in roads for body in road.bodies]
            assert len(bodies) >= 2 and len({body["seed"] for body in bodies}) == 1
            assert b"token_ids" not in stream

    run(look())


def test_a_request_that_itself_resumes_is_resumed_from_all_its_tokens(engine: AppServer) -> None:
    engine.say(WORDS)
    whole = engine.post(CHAT, {"messages": HI, "return_token_ids": True, "seed": 1}).json()
    prior = whole["choices"][0]["token_ids"][:2]
    body = {"messages": HI, "seed": 1, "resume": {"output_token_ids": [prior]}, **USAGE}
    expected = comparable(direct(engine, CHAT, body))

    async def look() -> None:
        async with cuttable([port_of(engine)] * 2) as roads, routed(*_words(roads)) as router:
            for road in roads:
                road.cuts = [Cut(2)]
            assert comparable(await router.stream(CHAT, body)) == expected

    run(look())


def test_log_probabilities_cannot_be_resumed_and_the_stream_says_so(engine: AppServer) -> None:
    engine.say(WORDS)

    async def look() -> None:
        async with cuttable([port_of(engine)] * 2) as roads, routed(*_words(roads)) as router:
            for road in roads:
                road.cuts = [Cut(3)]
            stream = await router.stream(CHAT, {"messages": HI, "logprobs": True})
            last = stream.rstrip().rpartition(b"data: ")[2]
            assert json.loads(last)["error"]["code"] == "stream_broken"
            assert "log-probabilities" in json.loads(last)["error"]["message"]
            assert b"[DONE]" not in stream

    run(look())


def test_an_engine_that_refuses_to_resume_ends_the_stream_with_its_reason() -> None:
    with serving(ServerOptions()) as closed:
        closed.say(WORDS)

        async def look() -> None:
            async with cuttable([port_of(closed)] * 2) as roads, routed(*_words(roads)) as router:
                for road in roads:
                    road.cuts = [Cut(3)]
                stream = await router.stream(CHAT, {"messages": HI})
                last = json.loads(stream.rstrip().rpartition(b"data: ")[2])
                assert "resume_not_allowed" in last["error"]["message"]

        run(look())


def test_continuation_can_be_switched_off(engine: AppServer) -> None:
    engine.say(WORDS)

    async def look() -> None:
        async with cuttable([port_of(engine)]) as roads:
            async with routed(*_words(roads), continue_streams=False) as router:
                roads[0].cuts = [Cut(3)]
                stream = await router.stream(CHAT, {"messages": HI})
                last = json.loads(stream.rstrip().rpartition(b"data: ")[2])
                assert "switched off" in last["error"]["message"]

    run(look())
