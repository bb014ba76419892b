"""An answer that breaks off after any token and is resumed is the answer that never broke off."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.config.engine_config import ServerOptions
from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.server.assembler import ChatAssembler
from qanat.server.events import Finish, ReasoningDelta, TextDelta, ToolCallDelta
from qanat.server.tools.parser import CallFormat
from tests.server.test_errors import refuse, still_serves
from tests.server.tools.replies import (
    TEXT_TAG_TOKENIZER,
    TOKENIZER,
    assembler,
    hermes_text,
    pieces_of,
    tool,
    xml_text,
)
from tests.support.app_server import AppServer, serving
from tests.support.scripted_engine import Piece

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
BEGUN = [*HI, {"role": "assistant", "content": "It"}]
CLOSE, OPEN = "</think>", "<think>"
END_ID = TOKENIZER.piece_id("<|im_end|>")
TOOLS = [tool("f", {"type": "object", "properties": {"n": {"type": "integer"}}})]


@pytest.fixture(scope="module")
def open_server() -> Iterator[AppServer]:
    with serving(ServerOptions(allow_resume=True)) as running:
        yield running
        running.wait_until_idle()


@pytest.fixture(scope="module")
def open_hermes_server() -> Iterator[AppServer]:
    with serving(ServerOptions(allow_resume=True), model_family="qwen3") as running:
        yield running
        running.wait_until_idle()


def joined(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What a client makes of a chat or completion stream; ids of calls are left out, as each run has its own."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for news in chunk["choices"]:
            empty = {
                "text": "",
                "reasoning": "",
                "roles": 0,
                "calls": [],
                "ids": [],
                "ends": [],
                "prompts": [],
            }
            choice = choices.setdefault(news["index"], copy.deepcopy(empty))
            delta = news.get("delta", {})
            choice["text"] += news.get("text", "") + delta.get("content", "")
            choice["reasoning"] += delta.get("reasoning", "")
            choice["roles"] += "role" in delta
            choice["ids"] += news.get("token_ids", [])
            choice["prompts"] += [
                holder["prompt_token_ids"] for holder in (chunk, news) if "prompt_token_ids" in holder
            ]
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(choice["calls"])
                    choice["calls"].append([call["function"]["name"], ""])
                choice["calls"][call["index"]][1] += call["function"]["arguments"]
            if news["finish_reason"] is not None:
                choice["ends"].append((news["finish_reason"], news["stop_reason"]))
    return choices


def whole_joined(body: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The same of an answer in one piece."""
    choices = {}
    for choice in body["choices"]:
        message = choice.get("message", {})
        calls = [call["function"] for call in message.get("tool_calls", [])]
        choices[choice["index"]] = {
            "text": choice.get("text", "") + (message.get("content") or ""),
            "reasoning": message.get("reasoning") or "",
            "calls": [[call["name"], call["arguments"]] for call in calls],
            "ids": choice["token_ids"],
            "ends": [(choice["finish_reason"], choice["stop_reason"])],
        }
    return choices


def cuts_of(chunks: list[dict[str, Any]]) -> Iterator[int]:
    """Every place at which a client has all that belongs to the tokens it has: after a chunk with ids."""
    yield 0
    for position, chunk in enumerate(chunks):
        if any("token_ids" in choice for choice in chunk["choices"]):
            yield position + 1


def check_every_cut(server: AppServer, path: str, body: dict[str, Any]) -> int:
    """Resumes after every cut, streamed and whole; returns how many cuts there were."""
    body = {"seed": 7, "return_token_ids": True, "n": 1, **body}
    streaming = {"stream_options": {"include_usage": True}}
    chunks = server.stream(path, {**body, **streaming})
    expected, usage = joined(chunks), chunks[-1]["usage"]
    num_cuts = 0
    for cut in cuts_of(chunks):
        before = joined(chunks[:cut])
        prior: list[Any] = [before[index]["ids"] if index in before else [] for index in range(body["n"])]
        has_ended = [index in before and bool(before[index]["ends"]) for index in range(body["n"])]
        if all(has_ended):
            continue
        num_cuts += 1
        given = [None if ended else ids for ids, ended in zip(prior, has_ended, strict=True)]
        resumed = {**body, "resume": {"output_token_ids": given}}
        after = server.stream(path, {**resumed, **streaming})
        assert joined(chunks[:cut] + after) == expected, (cut, given)
        whole = server.post(path, resumed)
        assert whole.status_code == 200, whole.text
        shown = {
            index: {name: value for name, value in choice.items() if name not in ("roles", "prompts")}
            for index, choice in expected.items()
            if not has_ended[index]
        }
        assert whole_joined(whole.json()) == shown
        if not any(has_ended):
            assert after[-1]["usage"] == whole.json()["usage"] == usage
    return num_cuts


XML_REPLY = "\n\nI look.\n\n" + xml_text("f", {"n": 5, "s": "é\nü"}) + "\n" + xml_text("f", {"n": 6})
CHAT_SCRIPTS: list[tuple[list[Piece], dict[str, Any]]] = [
    (["why", " not", CLOSE, "\n\n", "Hel", "lo", "\n", "you"], {}),
    (["thought", CLOSE, "one", " ST", "O", "ne ", "STO", "P", "never"], {"stop": ["STOP"]}),
    (["thought", CLOSE, "\n\n", "a", "\n\n", "b"], {"stop": ["\n\n"]}),
    ([CLOSE, b"\xf0\x9f", b"\x98\x8a", b"\xe4", b"\xbd", b"\xa0", "!"], {}),
    ([CLOSE, b"\xf0\x9f", b"\x98\x8a", b"\xe4", b"\xbd"], {"max_tokens": 5}),
    ([OPEN, "\n", "why", "\n", CLOSE, "\n", "42"], {"min_tokens": 3}),
    (["why", CLOSE, "a<", OPEN, "b"], {"include_reasoning": False}),
    (["no end", " of", " thoughts"], {"max_tokens": 3}),
    (pieces_of("why" + CLOSE + XML_REPLY, 7), {"tools": TOOLS}),
    (pieces_of("why" + XML_REPLY, 9), {"tools": TOOLS, "parallel_tool_calls": False}),
    (pieces_of(CLOSE + "<tool_call>\n<function=f>\nSTOP no", 3), {"tools": TOOLS, "stop": ["STOP"]}),
    (pieces_of(CLOSE + XML_REPLY, 5), {"tools": TOOLS, "max_tokens": 20}),
    (
        [CLOSE, "It", " goes", " on"],
        {"messages": [*HI, {"role": "assistant", "content": "x"}], "continue_final_message": True},
    ),
]


@pytest.mark.parametrize(("pieces", "fields"), CHAT_SCRIPTS, ids=range(len(CHAT_SCRIPTS)))
@pytest.mark.parametrize("tokens_per_step", [1, 3])
def test_chat_answers_go_on_after_every_token(
    open_server: AppServer, pieces: list[Piece], fields: dict[str, Any], tokens_per_step: int
) -> None:
    open_server.say(pieces, tokens_per_step)
    assert check_every_cut(open_server, CHAT, {"messages": HI, **fields}) > 0


@pytest.mark.parametrize("size", [2, 5])
def test_json_calls_go_on_after_every_token(open_hermes_server: AppServer, size: int) -> None:
    text = OPEN + "why" + CLOSE + "I look." + hermes_text("f", {"n": 5, "s": '"}é\\'}) + "\nDone."
    open_hermes_server.say(pieces_of(text, size))
    assert check_every_cut(open_hermes_server, CHAT, {"messages": HI, "tools": TOOLS}) > 10


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_several_choices_go_on_and_those_that_ended_are_left_out(open_server: AppServer, path: str) -> None:
    open_server.say(["why", CLOSE, "a", "b", "STOP"])
    prompt: dict[str, Any] = {"messages": HI} if path == CHAT else {"prompt": "x"}
    assert check_every_cut(open_server, path, {**prompt, "n": 3, "stop": ["STOP"]}) > 5
    open_server.say(["x", "y"])
    body = {**prompt, "n": 2, "seed": 1, "max_tokens": 4, "return_token_ids": True}
    some = open_server.scripted.tokenizer.piece_id("x")
    answer = open_server.post(path, {**body, "resume": {"output_token_ids": [None, [some]]}}).json()
    assert [choice["index"] for choice in answer["choices"]] == [1]
    assert answer["usage"]["completion_tokens"] == 3


COMPLETION_SCRIPTS: list[tuple[list[Piece], dict[str, Any]]] = [
    (["Hel", "lo", " you"], {}),
    (["one", " ST", "O", "ne ", "STO", "P", "never"], {"stop": ["STOP"]}),
    (["one", " two"], {"stop": ["two"], "include_stop_str_in_output": True, "echo": True}),
    ([b"\xf0\x9f", b"\x98\x8a", b"\xe4", b"\xbd", b"\xa0", "!"], {"max_tokens": 5}),
    (["a", "<|im_end|>", "b", "c"], {"ignore_eos": True, "max_tokens": 4, "skip_special_tokens": False}),
]


@pytest.mark.parametrize(("pieces", "fields"), COMPLETION_SCRIPTS, ids=range(len(COMPLETION_SCRIPTS)))
@pytest.mark.parametrize("tokens_per_step", [1, 3])
def test_completions_go_on_after_every_token(
    open_server: AppServer, pieces: list[Piece], fields: dict[str, Any], tokens_per_step: int
) -> None:
    open_server.say(pieces, tokens_per_step)
    check_every_cut(open_server, COMPLETIONS, {"prompt": "x", **fields})


def test_a_long_output_is_read_again_beside_the_loop(open_server: AppServer) -> None:
    open_server.say(["why", CLOSE, *["word "] * 900, "end"])
    body = {"messages": HI, "seed": 1, "return_token_ids": True, "stop": ["never"]}
    whole = open_server.post(CHAT, body).json()
    prior = whole["choices"][0]["token_ids"][:901]
    resumed = open_server.post(CHAT, {**body, "resume": {"output_token_ids": [prior]}}).json()
    assert resumed["choices"] == whole["choices"] and resumed["usage"] == whole["usage"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_earlier_prompt_can_be_given(open_server: AppServer, path: str) -> None:
    open_server.say(["a", "b"])
    prompt: dict[str, Any] = {"messages": HI} if path == CHAT else {"prompt": "x"}
    resume = {"output_token_ids": [[]], "prompt_token_ids": [97, 98, 99]}
    body = {**prompt, "seed": 1, "return_token_ids": True, "max_tokens": 2, "resume": resume}
    answer = open_server.post(path, body).json()
    assert answer["usage"]["prompt_tokens"] == 3
    holder = answer if path == CHAT else answer["choices"][0]
    assert holder["prompt_token_ids"] == [97, 98, 99]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"seed": None}, "seed"),
    ({"resume": {}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": []}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [None]}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [[1], [2]]}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [[-1]]}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [[9000]]}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [["a"]]}}, "resume.output_token_ids[0][0]"),
    ({"resume": {"output_token_ids": [[1] * 8]}}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [[83, 84, 79, 80]]}, "stop": ["STOP"]}, "resume.output_token_ids"),
    ({"resume": {"output_token_ids": [[1]], "prompt_token_ids": []}}, "resume.prompt_token_ids"),
    ({"resume": {"output_token_ids": [[1]], "prompt_token_ids": [9000]}}, "resume.prompt_token_ids[0]"),
    ({"resume": {"output_token_ids": [[1]], "tokens": []}}, "resume.tokens"),
    ({"prompt_logprobs": 1, "resume": {"output_token_ids": [[1]]}}, "prompt_logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=str)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_cannot_be_resumed_is_refused(
    open_server: AppServer, path: str, fields: dict[str, Any], param: str
) -> None:
    prompt: dict[str, Any] = {"messages": HI} if path == CHAT else {"prompt": "x"}
    base = {"resume": {"output_token_ids": [[1]]}, "seed": 1, "max_tokens": 8, **prompt}
    if path == CHAT:
        base["chat_template_kwargs"] = {"enable_thinking": False}
    refuse(open_server.post(path, {**base, **fields}), param=param)
    if fields.get("prompt_logprobs") is None:
        refuse(open_server.post(path, {**base, **fields, "stream": True}), param=param)
    still_serves(open_server)


def test_one_prompt_at_a_time_and_no_scores(open_server: AppServer) -> None:
    body = {"prompt": ["x", "y"], "seed": 1, "resume": {"output_token_ids": [[1]]}}
    refuse(open_server.post(COMPLETIONS, body), param="resume")
    refuse(open_server.post(COMPLETIONS, {**body, "prompt": "x", "logprobs": 1}), param="logprobs")
    chat = {"messages": HI, "seed": 1, "resume": {"output_token_ids": [[1]]}, "logprobs": True}
    refuse(open_server.post(CHAT, chat), param="logprobs")


def test_not_everybody_may_resume(server: AppServer) -> None:
    body = {"messages": HI, "seed": 1, "resume": {"output_token_ids": [[1]]}}
    error = refuse(server.post(CHAT, body), 403, "resume")
    assert "--allow-resume" in error["message"] and "`resume: true`" in error["message"]
    assert (error["code"], error["type"]) == ("resume_not_allowed", "permission_error")
    refuse(
        server.post(COMPLETIONS, {"prompt": "x", "seed": 1, "resume": {"output_token_ids": [[1]]}}),
        403,
        "resume",
    )
    with serving(ServerOptions(api_key=("user",), admin_api_key=("admin",))) as guarded:
        guarded.say([CLOSE, "a"])
        for key, status in (("user", 403), ("admin", 200)):
            headers = {"authorization": f"Bearer {key}"}
            assert guarded.http.post(CHAT, json=body, headers=headers).status_code == status


def step_by_step(reader: ChatAssembler, ids: list[int]) -> Iterator[list[str]]:
    """After each token all that was said so far: text, reasoning, calls, the end."""
    said = ["", "", "", ""]
    for token_id in ids:
        reason = FinishReason.STOP if token_id == END_ID else None
        for event in reader.push(GenerationEvent(token_ids=[token_id], finish_reason=reason)):
            if isinstance(event, TextDelta):
                said[0] += event.text
            elif isinstance(event, ReasoningDelta):
                said[1] += event.text
            elif isinstance(event, ToolCallDelta):
                said[2] += f"|{event.position} {event.name}: " if event.call_id else event.arguments
            elif isinstance(event, Finish):
                said[3] += str(msgspec.structs.astuple(event))
        yield list(said)
        if said[3]:
            return


OUTPUT_PIECES = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=f>",
    "<parameter=s>\n",
    "</parameter>",
]
OUTPUT_PIECES += [
    "</function>",
    "{",
    '"name": "f"',
    ', "arguments": {',
    '"a": "b',
    '"}}',
    "STOP",
    "ST",
    "OP",
    "a",
    " ",
    "\n",
]
OUTPUT_BYTES = [b"\xf0\x9f", b"\x98\x8a", b"\xe4"]


@pytest.mark.parametrize("call_format", list(CallFormat))
@pytest.mark.parametrize("has_tag_tokens", [True, False])
@settings(max_examples=150)
@given(
    pieces=st.lists(st.sampled_from([*OUTPUT_PIECES, *OUTPUT_BYTES]), max_size=16),
    is_open=st.booleans(),
    stops=st.sampled_from([[], ["STOP"], ["a\n", "OP"]]),
    max_calls=st.sampled_from([None, 1]),
    min_tokens=st.integers(0, 3),
)
def test_any_output_goes_on_after_any_token(
    call_format: CallFormat,
    has_tag_tokens: bool,
    pieces: list[Piece],
    is_open: bool,
    stops: list[str],
    max_calls: int | None,
    min_tokens: int,
) -> None:
    tokenizer = TOKENIZER if has_tag_tokens else TEXT_TAG_TOKENIZER
    ids: list[int] = [*(tokenizer.piece_id(piece) for piece in pieces), END_ID]

    def new() -> ChatAssembler:
        return assembler(
            call_format,
            TOOLS,
            tokenizer=tokenizer,
            is_open=is_open,
            max_calls=max_calls,
            stop=stops,
            min_tokens=min_tokens,
        )

    seen = [["", "", "", ""], *step_by_step(new(), ids)]
    for cut, before in enumerate(seen[:-1]):
        resumed = new()
        resumed.replay(ids[:cut])
        after = list(step_by_step(resumed, ids[cut:]))[-1]
        assert [a + b for a, b in zip(before, after, strict=True)] == seen[-1]
