"""Token ids and token counts in answers: exactly the output's, whatever is held back, and the same streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.app_server import AppServer
from tests.support.scripted_engine import Piece

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
CLOSE, OPEN_CALL = "</think>", "<tool_call>"

SCRIPTS: list[tuple[list[Piece], dict[str, Any], int]] = [
    (["why", CLOSE, "\n\n", "Hel", "lo"], {}, 6),
    ([CLOSE, "one", " tw", "o three"], {"stop": [" two"]}, 4),
    ([CLOSE, "one", " STO", "PX", "never"], {"stop": ["STOP"]}, 4),
    ([CLOSE, b"\xf0\x9f", b"\x98\x8a", "!"], {"max_tokens": 2}, 2),
    ([CLOSE, "a", "b", "c"], {"max_tokens": 3}, 3),
    (["only", " thoughts"], {"include_reasoning": False}, 3),
    ([CLOSE, OPEN_CALL, "no ", "STOP", " call"], {"tools": [TOOL], "stop": ["STOP"]}, 4),
    ([CLOSE, OPEN_CALL, "\n<function=f>", "\n</function>\n", "</tool_call>"], {"tools": [TOOL]}, 6),
]


def script_ids(server: AppServer, pieces: Sequence[Piece], num_tokens: int) -> list[int]:
    tokenizer = server.scripted.tokenizer
    return [tokenizer.piece_id(piece) for piece in [*pieces, "<|im_end|>"]][:num_tokens]


def ids_of(chunks: list[dict[str, Any]], index: int = 0) -> list[int]:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return [token_id for choice in choices for token_id in choice.get("token_ids", [])]


@pytest.mark.parametrize(("pieces", "fields", "num_tokens"), SCRIPTS, ids=range(len(SCRIPTS)))
@pytest.mark.parametrize("tokens_per_step", [1, 3, 9])
def test_chat_answers_carry_exactly_the_ids_of_their_tokens(
    server: AppServer, pieces: list[Piece], fields: dict[str, Any], num_tokens: int, tokens_per_step: int
) -> None:
    server.say(pieces, tokens_per_step)
    body = {"messages": HI, "return_token_ids": True, **fields}
    expected = script_ids(server, pieces, num_tokens)
    whole = server.post(CHAT, body).json()
    assert whole["choices"][0]["token_ids"] == expected
    assert whole["usage"]["completion_tokens"] == num_tokens
    chunks = server.stream(CHAT, body)
    assert ids_of(chunks) == expected
    rendered = {name: fields[name] for name in ("tools",) if name in fields}
    prompt = server.post("/tokenize", {"messages": HI, **rendered}).json()["tokens"]
    assert whole["prompt_token_ids"] == chunks[0]["prompt_token_ids"] == prompt
    assert all("prompt_token_ids" not in chunk for chunk in chunks[1:])
    assert chunks[-1]["choices"][0]["finish_reason"] is not None


def test_every_choice_begins_with_the_prompts_ids(server: AppServer) -> None:
    server.say([CLOSE, "a"])
    chunks = server.stream(CHAT, {"messages": HI, "n": 2, "return_token_ids": True})
    begun = [chunk["choices"][0]["index"] for chunk in chunks if "prompt_token_ids" in chunk]
    assert sorted(begun) == [0, 1]
    assert ids_of(chunks, 0) == ids_of(chunks, 1) == script_ids(server, [CLOSE, "a"], 3)


@pytest.mark.parametrize("tokens_per_step", [1, 4])
@pytest.mark.parametrize(
    "fields", [{}, {"stop": ["c"]}, {"stop": ["bcd"]}, {"echo": True, "logprobs": 1}], ids=str
)
def test_completions_carry_their_ids_per_choice(
    server: AppServer, fields: dict[str, Any], tokens_per_step: int
) -> None:
    pieces: list[Piece] = ["a", "bc", "d", b"\xe4\xbd", b"\xa0"]
    server.say(pieces, tokens_per_step)
    body = {"prompt": ["xy", "z"], "return_token_ids": True, **fields}
    expected = script_ids(server, pieces, {"c": 2, "bcd": 3}.get(fields.get("stop", [""])[0], 6))
    whole = server.post(COMPLETIONS, body).json()
    assert [choice["token_ids"] for choice in whole["choices"]] == [expected] * 2
    assert [choice["prompt_token_ids"] for choice in whole["choices"]] == [[120, 121], [122]]
    assert whole["usage"]["completion_tokens"] == 2 * len(expected)
    chunks = server.stream(COMPLETIONS, body)
    assert ids_of(chunks, 0) == ids_of(chunks, 1) == expected
    first = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        assert ("prompt_token_ids" in choice) is (choice["index"] not in first)
        first.setdefault(choice["index"], choice.get("prompt_token_ids"))
    assert first == {0: [120, 121], 1: [122]}


def test_no_ids_unless_asked_for(server: AppServer) -> None:
    server.say([CLOSE, "a"])
    for path, body in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})):
        assert "token_ids" not in server.http.post(path, json={**body, "stream": True}).text
        assert "token_ids" not in server.post(path, {**body, "return_token_ids": False}).text


@pytest.mark.parametrize("has_last", [True, False])
@pytest.mark.parametrize(("path", "prompt"), [(CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "hi"})])
def test_token_counts_in_every_chunk(
    server: AppServer, path: str, prompt: dict[str, Any], has_last: bool
) -> None:
    server.say([CLOSE, "a", "b"])
    options = {"continuous_usage_stats": True, **({"include_usage": True} if has_last else {})}
    chunks = server.stream(path, {**prompt, "n": 2, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 8
    whole = server.post(path, {**prompt, "n": 2}).json()["usage"]
    assert chunks[-1]["usage"] == whole
    assert (chunks[-1]["choices"] == []) is has_last
    assert all(chunk["usage"]["prompt_tokens"] == whole["prompt_tokens"] for chunk in chunks)
    assert all(sum(chunk["usage"][name] for name in ("prompt_tokens", "completion_tokens"))
               == chunk["usage"]["total_tokens"] for chunk in chunks)  # fmt: skip
