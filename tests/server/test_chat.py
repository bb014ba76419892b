"""/v1/chat/completions over a scripted model; names of tests carry the trial cases that they cover."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.test_errors import refuse
from tests.support.answers import Answer, streamed_chat, whole_chat
from tests.support.app_server import AppServer, serving
from tests.support.scripted_engine import Piece

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
OPEN, CLOSE = "<think>", "</think>"


def ask(server: AppServer, **fields: Any) -> dict[str, Any]:
    response = server.post(PATH, {"model": "scripted", "messages": HI, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def both(server: AppServer, **fields: Any) -> list[Answer]:
    """The choices of a whole answer, after checking that the streamed ones are the same."""
    whole = whole_chat(ask(server, **fields))
    streamed = server.stream(PATH, {"model": "scripted", "messages": HI, **fields})
    assert streamed_chat(streamed) == whole
    return whole


def test_a_reply_in_all_its_parts(server: AppServer) -> None:
    server.say(["think", CLOSE, "\n\n", "Hel", "lo"])
    body = ask(server)
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    message = body["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": "Hello",
        "reasoning": "think",
        "reasoning_content": "think",
        "refusal": None,
    }
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_the_first_chunk_of_each_choice_names_the_role(server: AppServer) -> None:
    server.say([CLOSE, "a"])
    chunks = server.stream(PATH, {"messages": HI, "n": 2})
    first = [next(c for chunk in chunks for c in chunk["choices"] if c["index"] == i) for i in (0, 1)]
    assert [choice["delta"] for choice in first] == [{"role": "assistant", "content": ""}] * 2


def test_api_003_stop_strings_apply_to_the_answer_only(qwen3_server: AppServer) -> None:
    qwen3_server.say([OPEN, "The ", "Question:", " asks 2+2", CLOSE, "4", "\nQuestion:", " next"])
    answer = both(qwen3_server, stop=["Question:"])[0]
    assert answer == Answer("4\n", "The Question: asks 2+2", [], [], "stop", "Question:")


def test_ben_016_a_stop_of_two_newlines_leaves_the_thinking_alone(server: AppServer) -> None:
    server.say(["step 1\n\n", "step 2", CLOSE, "42", "\n\n", "next"])
    answer = both(server, stop=["\n\n"])[0]
    assert (answer.text, answer.reasoning) == ("42", "step 1\n\nstep 2")


@pytest.mark.parametrize("tokens_per_step", [1, 3, 8])
def test_a_stop_in_the_answer_ends_one_choice_and_not_the_others(
    server: AppServer, tokens_per_step: int
) -> None:
    server.say([CLOSE, "a", "STOP", "b", "c"], tokens_per_step)
    body = ask(server, n=3, stop=["STOP"], ignore_eos=True, max_tokens=100)
    assert [answer.text for answer in whole_chat(body)] == ["a"] * 3
    assert body["usage"]["completion_tokens"] == 9
    server.wait_until_idle()


@pytest.mark.parametrize("num_top", [0, 1, 5])
def test_api_015_bytes_of_the_tokens_make_up_the_content(server: AppServer, num_top: int) -> None:
    server.say([CLOSE, b"\n\n", b"\xf0\x9f", b"\x98\x8a", b"!"])
    answer = both(server, logprobs=True, top_logprobs=num_top)[0]
    joined = bytes(byte for token in answer.tokens for byte in token["bytes"])
    assert joined.decode() == answer.text == "😊!"
    assert [239, 191, 189] not in [token["bytes"] for token in answer.tokens]
    assert all(len(token["top_logprobs"]) == num_top for token in answer.tokens)
    for token in answer.tokens if num_top else []:
        assert token["token"] in [top["token"] for top in token["top_logprobs"]]
    assert len(answer.tokens) + len(answer.reasoning_tokens) == 6  # every generated token, the last one too


def test_logprobs_with_a_stop_string_show_what_was_kept(server: AppServer) -> None:
    server.say([CLOSE, "one", " tw", "o three"])
    answer = both(server, logprobs=True, stop=[" two"])[0]
    assert answer.text == "one"
    assert [bytes(token["bytes"]) for token in answer.tokens] == [b"one", b"", b""]
    answer = both(server, logprobs=True, stop=["wo"])[0]
    assert answer.text == "one t"
    assert [bytes(token["bytes"]) for token in answer.tokens] == [b"one", b" t", b""]


def test_api_018_usage_comes_once_at_the_end(server: AppServer) -> None:
    server.say([CLOSE, "a", "b"])
    body = {"model": "scripted", "messages": HI, "n": 2, "max_tokens": 5}
    chunks = server.stream(PATH, {**body, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == ask(server, **body)["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert all("usage" not in chunk for chunk in server.stream(PATH, body))


@pytest.mark.parametrize("tokens_per_step", [1, 5])
def test_api_020_each_choice_ends_exactly_once(server: AppServer, tokens_per_step: int) -> None:
    server.say(["a", "b"], tokens_per_step)
    chunks = server.stream(PATH, {"messages": HI, "n": 3, "max_tokens": 4, "ignore_eos": True})
    ends = [c["index"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"] is not None]
    assert sorted(ends) == [0, 1, 2]
    assert [answer.finish_reason for answer in streamed_chat(chunks)] == ["length"] * 3


def test_api_032_null_is_the_same_as_absent(server: AppServer) -> None:
    server.say([CLOSE, *["a"] * 40])
    fields = ("max_tokens", "stop", "n", "seed", "stream", "tools", "logit_bias", "temperature", "user")
    expected = both(server)
    assert expected[0].text == "a" * 40  # not cut at 16
    assert both(server, **dict.fromkeys(fields)) == expected
    for field in fields:
        assert both(server, **{field: None}) == expected


def test_api_032_the_newer_name_of_max_tokens_wins(server: AppServer) -> None:
    server.say([CLOSE, *["a"] * 40])
    assert ask(server, max_completion_tokens=5)["usage"]["completion_tokens"] == 5
    assert ask(server, max_completion_tokens=5, max_tokens=7)["usage"]["completion_tokens"] == 5
    assert ask(server, max_tokens=0)["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("thinking", [True, False, None])
@pytest.mark.parametrize("has_tag", [True, False])
def test_api_050_thinking_on_and_off_where_the_prompt_opens_the_block(
    server: AppServer, thinking: bool | None, has_tag: bool
) -> None:
    kwargs = {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
    if thinking is False:
        server.say(["Hello", " there"])
        answer = both(server, **kwargs)[0]
        assert (answer.text, answer.reasoning) == ("Hello there", "")
    else:
        server.say([*([OPEN] if has_tag else []), "\nwhy\n", CLOSE, "\n\n", "Hello", " there"])
        answer = both(server, **kwargs)[0]
        assert (answer.text, answer.reasoning) == ("Hello there", "why")


@pytest.mark.parametrize("thinking", [True, False, None])
@pytest.mark.parametrize("has_block", [True, False])
def test_api_050_thinking_on_and_off_where_the_model_opens_the_block(
    qwen3_server: AppServer, thinking: bool | None, has_block: bool
) -> None:
    kwargs = {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
    qwen3_server.say([*([OPEN, "\n", "why", "\n", CLOSE, "\n\n"] if has_block else []), "Hello", " there"])
    answer = both(qwen3_server, **kwargs)[0]
    assert (answer.text, answer.reasoning) == ("Hello there", "why" if has_block else "")


def test_reasoning_effort_none_switches_thinking_off(server: AppServer) -> None:
    server.say(["Hello"])
    assert both(server, reasoning_effort="none")[0].text == "Hello"
    for effort in ("minimal", "low", "medium", "high", "xhigh", "max"):
        assert both(server, reasoning_effort=effort)[0].reasoning == "Hello"


@pytest.mark.parametrize("effort", ["bogus", "", "None", 1, True])
def test_an_unknown_reasoning_effort_is_refused_with_those_that_exist(server: AppServer, effort: Any) -> None:
    body = {"messages": HI, "max_tokens": 1, "reasoning_effort": effort}
    error = refuse(server.post(PATH, body), param="reasoning_effort")
    if isinstance(effort, str):
        assert "none, minimal, low, medium, high, xhigh, max" in error["message"]


def test_thinking_tags_typed_by_the_user_do_not_open_a_block(qwen3_server: AppServer) -> None:
    qwen3_server.say(["Hello"])
    messages = [{"role": "user", "content": "what does <think> mean?"}]
    assert both(qwen3_server, messages=messages)[0].text == "Hello"


def test_tags_inside_the_answer_are_text(server: AppServer) -> None:
    server.say(["why", CLOSE, "use ", OPEN, " and ", CLOSE, "!"])
    answer = both(server)[0]
    assert (answer.text, answer.reasoning) == ("use <think> and </think>!", "why")


@pytest.mark.parametrize("max_tokens", range(1, 9))
def test_api_052_reasoning_cut_by_the_limit_stays_reasoning(qwen3_server: AppServer, max_tokens: int) -> None:
    pieces: list[Piece] = [OPEN, "long", " thought", " goes", " on", CLOSE, "4", "2"]
    qwen3_server.say(pieces)
    answer = both(qwen3_server, max_tokens=max_tokens)[0]
    visible = [str(piece) for piece in pieces[:max_tokens]]
    close = visible.index(CLOSE) if CLOSE in visible else len(visible)
    assert answer.reasoning == "".join(visible[1:close])
    assert answer.text == "".join(visible[close + 1 :])
    assert answer.finish_reason == "length"


def test_reasoning_without_an_end_is_not_an_answer(server: AppServer) -> None:
    server.say(["long", " thought"])
    body = ask(server)
    assert body["choices"][0]["message"]["content"] is None
    assert body["choices"][0]["message"]["reasoning_content"] == "long thought"
    assert body["choices"][0]["finish_reason"] == "stop"


def test_reasoning_can_be_left_out(server: AppServer) -> None:
    server.say(["long", " thought", CLOSE, "42"])
    answer = both(server, include_reasoning=False)[0]
    assert (answer.text, answer.reasoning) == ("42", "")


def test_tool_definitions_are_in_the_prompt(server: AppServer) -> None:
    server.say([CLOSE, "ok"])
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = ask(server, tools=tools, tool_choice="auto")
    without = ask(server, tools=tools, tool_choice="none")
    assert without["usage"]["prompt_tokens"] == ask(server)["usage"]["prompt_tokens"]
    assert body["usage"]["prompt_tokens"] > without["usage"]["prompt_tokens"] + 50


def test_api_060_a_second_turn_after_a_tool_call(server: AppServer) -> None:
    server.say([CLOSE, "cold"])
    call = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "user", "content": "Look up Oslo"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "cold"},
    ]
    assert both(server, messages=messages)[0].text == "cold"


@pytest.mark.parametrize(
    "roles",
    [
        ["system", "user"],
        ["user", "system"],
        ["system", "user", "system"],
        ["developer", "developer", "user"],
        ["developer", "user", "system", "user"],
        ["tool", "user"],
        ["user", "assistant"],
    ],
)
def test_api_061_every_order_of_roles_is_treated_alike(server: AppServer, roles: list[str]) -> None:
    server.say([CLOSE, "ok"])
    messages = [{"role": role, "content": f"message {i}"} for i, role in enumerate(roles)]
    assert both(server, messages=messages)[0].text == "ok"


def test_prompt_logprobs_stand_beside_the_choices(server: AppServer) -> None:
    server.say([CLOSE])
    body = ask(server, prompt_logprobs=0)
    assert len(body["prompt_logprobs"]) == body["usage"]["prompt_tokens"]
    assert body["prompt_logprobs"][0] is None
    assert all(len(position) == 1 for position in body["prompt_logprobs"][1:])


def test_the_parser_can_be_switched_off() -> None:
    from qanat.config.engine_config import ServerOptions

    with serving(ServerOptions(reasoning_parser="none")) as server:
        server.say(["why", CLOSE, "42"])
        assert both(server)[0].text == "why</think>42"


def test_template_arguments_of_the_operator_hold_where_a_request_brings_none() -> None:
    from qanat.config.engine_config import ServerOptions

    with serving(ServerOptions(default_chat_template_kwargs={"enable_thinking": False})) as server:
        server.say(["42"])
        assert both(server)[0].text == "42"
        assert both(server, chat_template_kwargs={"enable_thinking": True})[0].reasoning == "42"


def test_api_024_defaults_of_the_checkpoint_hold_where_a_request_names_none() -> None:
    with serving(sampling_defaults={"repetition_penalty": 1.5, "top_k": 1}) as server:
        server.say([CLOSE, "a"])
        seen: list[Any] = []
        original = server.scripted.executor.execute

        def spy(batch: Any) -> Any:
            seen.extend((row.sampling.top_k, row.sampling.repetition_penalty) for row in batch.new_rows)
            return original(batch)

        server.scripted.executor.execute = spy  # type: ignore[method-assign]
        both(server)
        ask(server, top_k=0, repetition_penalty=1.0)
        assert seen == [(1, 1.5), (1, 1.5), (0, 1.0)]


def test_the_official_client_chats_and_streams(server: AppServer) -> None:
    server.say(["why", CLOSE, "Hel", "lo"])
    messages: Any = HI
    with server.client() as client:
        whole = client.chat.completions.create(
            model="scripted", messages=messages, logprobs=True, top_logprobs=2
        )
        choice = whole.choices[0]
        assert choice.message.content == "Hello"
        assert choice.message.model_extra == {"reasoning": "why", "reasoning_content": "why"}
        assert choice.logprobs is not None and choice.logprobs.content is not None
        assert bytes(b for token in choice.logprobs.content for b in token.bytes or []) == b"Hello"
        with client.chat.completions.stream(model="scripted", messages=messages) as stream:
            assert stream.get_final_completion().choices[0].message.content == "Hello"
        names = [model.id for model in client.models.list()]
        assert names == ["scripted", "scripted-alias"]
        assert client.models.retrieve("scripted-alias").id == "scripted-alias"
