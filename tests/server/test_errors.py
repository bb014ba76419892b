"""Bad input: a clear error in OpenAI's shape, and a server that lives on. Names carry the trial cases covered."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.support.app_server import AppServer, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


def refuse(response: httpx.Response, status: int = 400, param: str | None = None) -> dict[str, Any]:
    """Checks the shape of an error and returns its inside."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] and error["code"]
    assert error["param"] == param
    return error


def still_serves(server: AppServer) -> None:
    server.say(["fine"])
    response = server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1})
    assert response.status_code == 200 and response.json()["choices"][0]["text"] == "fine"


@pytest.mark.parametrize(
    "prompt",
    [
        [-1],
        [8192],
        [2**31],
        [2**63],
        [2**70],
        [1.5],
        ["a", 1],
        [1, "a"],
        [[1], [2, -5]],
        [True],
        [[1], 2],
        {"a": 1},
    ],
    ids=str,
)
def test_api_008_token_ids_out_of_range(server: AppServer, prompt: Any) -> None:
    response = server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 1})
    assert response.json()["error"]["param"].startswith("prompt")
    refuse(response, param=response.json()["error"]["param"])
    still_serves(server)


def test_api_008_the_bad_token_is_named(server: AppServer) -> None:
    error = refuse(server.post(COMPLETIONS, {"prompt": [[1, 2], [3, 9000]]}), param="prompt[1][1]")
    assert "9000" in error["message"] and "8191" in error["message"]


@pytest.mark.parametrize("prompt", ["", [""], [], ["ok", ""], [[]], [[1], []]], ids=str)
def test_api_010_empty_prompts(server: AppServer, prompt: Any) -> None:
    refuse(server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 2}), param="prompt")


def test_api_010_absent_prompts_and_messages(server: AppServer) -> None:
    refuse(server.post(COMPLETIONS, {"prompt": None}), param="prompt")
    refuse(server.post(COMPLETIONS, {}), param="prompt")
    refuse(server.post(CHAT, {"messages": []}), param="messages")
    still_serves(server)


def test_api_010_others_go_on_meanwhile(server: AppServer) -> None:
    server.say(["a"] * 600)
    with streaming(server, {"prompt": "x", "max_tokens": 500}) as lines:
        next(lines)
        refuse(server.post(COMPLETIONS, {"prompt": ["ok", ""]}), param="prompt")
        assert list(lines)[-1] == "data: [DONE]"


@contextlib.contextmanager
def streaming(server: AppServer, body: dict[str, Any], path: str = COMPLETIONS) -> Iterator[Iterator[str]]:
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        yield (line for line in response.iter_lines() if line)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("num_chars", [2049, 4096, 40_960])
def test_api_029_api_031_prompts_longer_than_the_window_are_refused_not_cut(
    server: AppServer, num_chars: int, is_stream: bool
) -> None:
    body = {"prompt": "x" * num_chars, "max_tokens": 8, "stream": is_stream}
    error = refuse(server.post(COMPLETIONS, body), param="prompt")
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert "2048" in error["message"]
    messages = [{"role": "user", "content": "x" * num_chars}]
    error = refuse(server.post(CHAT, {"messages": messages, "stream": is_stream}), param="messages")
    assert error["code"] == "context_length_exceeded"
    num_steps = server.in_loop(lambda: server.scripted.core.num_steps)
    server.post(COMPLETIONS, body)
    assert server.in_loop(lambda: server.scripted.core.num_steps) == num_steps  # nothing reached the model


def test_api_029_many_at_once_leave_a_running_stream_alone(server: AppServer) -> None:
    server.say(["a"] * 700)
    with streaming(server, {"prompt": "x", "max_tokens": 600}) as lines:
        next(lines)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            body = {"prompt": "x" * 30_000}
            responses = list(pool.map(lambda _: server.post(COMPLETIONS, body), range(50)))
        assert {response.status_code for response in responses} == {400}
        assert list(lines)[-1] == "data: [DONE]"
    server.wait_until_idle()


def test_prompt_and_output_together_must_fit(server: AppServer) -> None:
    error = refuse(server.post(COMPLETIONS, {"prompt": "x" * 100, "max_tokens": 2000}), param="max_tokens")
    assert error["code"] == "context_length_exceeded"
    assert "1948" in error["message"]


BROKEN_BODIES = {
    "array": b"[1,2,3]",
    "true": b"true",
    "null": b"null",
    "number": b"1.5",
    "string": b'"s"',
    "empty object": b"{}",
    "broken": b'{"messages": [',
    "empty": b"",
    "trailing": b'{"messages": []} x',
    "nan": b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    "bad utf-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "deep": b'{"messages": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep object": b'{"messages": [{"role": "user", "content": "x"}], "metadata": '
    + b'{"a":' * 5_000
    + b"1"
    + b"}" * 5_000
    + b"}",
    "messages number": b'{"messages": 5}',
    "content number": b'{"messages": [{"role": "user", "content": 7}]}',
    "message number": b'{"messages": [7]}',
    "tools number": b'{"messages": [{"role": "user", "content": "x"}], "tools": 3}',
    "tool calls text": b'{"messages": [{"role": "assistant", "content": "x", "tool_calls": "x"}]}',
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
def test_api_033_bodies_of_the_wrong_shape(server: AppServer, name: str) -> None:
    for path in (CHAT, COMPLETIONS):
        response = server.http.post(
            path, content=BROKEN_BODIES[name], headers={"content-type": "application/json"}
        )
        refuse(response, param=response.json()["error"]["param"])
    still_serves(server)


def test_api_033_duplicate_keys_take_the_last(server: AppServer) -> None:
    body = b'{"prompt": "x", "max_tokens": "no", "max_tokens": 1}'
    response = server.http.post(COMPLETIONS, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200


def test_api_033_large_bodies(server: AppServer) -> None:
    text = "word " * 4_000_000
    refuse(server.post(COMPLETIONS, {"prompt": text}), param="prompt")
    refuse(server.post(CHAT, {"messages": [{"role": "user", "content": text}]}), param="messages")
    error = refuse(server.post(COMPLETIONS, {"prompt": text * 3}), 413)
    assert error["code"] == "body_too_large"
    still_serves(server)


def test_api_033_content_types(server: AppServer) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        response = server.http.post(COMPLETIONS, content=body, headers={"content-type": kind})
        assert refuse(response, 415)["code"] == "unsupported_media_type"
    response = server.http.post(
        COMPLETIONS, content=gzip.compress(body), headers={"content-encoding": "gzip"}
    )
    assert "gzip" in refuse(response, 415)["message"]
    headers = {"content-type": "Application/JSON; charset=utf-8", "content-encoding": "identity"}
    assert server.http.post(COMPLETIONS, content=body, headers=headers).status_code == 200
    assert server.http.post(COMPLETIONS, content=body).status_code == 200


def test_api_033_unknown_paths_and_methods(server: AppServer) -> None:
    assert refuse(server.http.get("/v1/nothing"), 404)["code"] == "not_found"
    assert refuse(server.http.post("/"), 404)["code"] == "not_found"
    assert refuse(server.http.get(CHAT), 405)["code"] == "method_not_allowed"
    assert "POST" in server.http.get(CHAT).headers["allow"]
    refuse(server.http.delete("/v1/models"), 405)
    refuse(server.http.get("/v1/models/none"), 404, param="model")


WRONG_FIELDS: list[tuple[str, Any, str]] = [
    ("temperature", -1, "temperature"),
    ("temperature", "hot", "temperature"),
    ("top_p", 0, "top_p"),
    ("top_p", 1.5, "top_p"),
    ("top_k", -2, "top_k"),
    ("top_k", 1.5, "top_k"),
    ("min_p", 2, "min_p"),
    ("presence_penalty", 2.5, "presence_penalty"),
    ("frequency_penalty", -3, "frequency_penalty"),
    ("repetition_penalty", 0, "repetition_penalty"),
    ("n", 0, "n"),
    ("n", 1000, "n"),
    ("n", True, "n"),
    ("max_tokens", -1, "max_tokens"),
    ("max_tokens", "5", "max_tokens"),
    ("min_tokens", 30, "min_tokens"),
    ("seed", 2**70, "seed"),
    ("seed", "x", "seed"),
    ("stop", [""], "stop"),
    ("stop", [1], "stop[0]"),
    ("stop", 5, "stop"),
    ("stop_token_ids", [-1], "stop_token_ids"),
    ("stop_token_ids", ["a"], "stop_token_ids[0]"),
    ("allowed_token_ids", [], "allowed_token_ids"),
    ("allowed_token_ids", [100_000], "allowed_token_ids"),
    ("logit_bias", {"5": 101}, "logit_bias"),
    ("logit_bias", {"x": 1}, "logit_bias"),
    ("logit_bias", {"100000": 1}, "logit_bias"),
    ("logit_bias", [1], "logit_bias"),
    ("bad_words", "word", "bad_words"),
    ("ignore_eos", 1, "ignore_eos"),
    ("stream", "yes", "stream"),
    ("prompt_logprobs", -1, "prompt_logprobs"),
    ("prompt_logprobs", 21, "prompt_logprobs"),
    ("priority", 1, "priority"),
    ("stream_options", {"include_usage": True}, "stream_options"),
    ("stream_options", {"include": True}, "stream_options.include"),
    ("max_tokenz", 5, "max_tokenz"),
]


@pytest.mark.parametrize(("field", "value", "param"), WRONG_FIELDS, ids=str)
def test_wrong_values_are_refused_by_name(server: AppServer, field: str, value: Any, param: str) -> None:
    refuse(server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 20, field: value}), param=param)
    refuse(server.post(CHAT, {"messages": HI, "max_tokens": 20, field: value}), param=param)


def test_an_unknown_field_is_refused_with_the_nearest_known_one(server: AppServer) -> None:
    error = refuse(server.post(CHAT, {"messages": HI, "max_token": 5}), param="max_token")
    assert "max_tokens" in error["message"]


REFUSED_FIELDS: list[tuple[str, str, Any, Any]] = [
    (COMPLETIONS, "best_of", 2, 1),
    (COMPLETIONS, "suffix", "end", ""),
    (COMPLETIONS, "use_beam_search", True, False),
    (COMPLETIONS, "prompt_embeds", "x", None),
    (COMPLETIONS, "truncate_prompt_tokens", 5, None),
    (CHAT, "functions", [{}], []),
    (CHAT, "function_call", "auto", "none"),
    (CHAT, "audio", {"voice": "x"}, None),
    (CHAT, "modalities", ["text", "audio"], ["text"]),
    (CHAT, "chat_template", "{{ 1 }}", None),
    (CHAT, "echo", True, False),
    (CHAT, "enable_thinking", False, None),
    (CHAT, "thinking", {"type": "disabled"}, None),
    (CHAT, "thinking_budget", 100, None),
    (CHAT, "extra_body", {"top_k": 1}, {}),
]


@pytest.mark.parametrize(("path", "field", "value", "neutral"), REFUSED_FIELDS)
def test_what_is_not_offered_is_refused_with_a_reason(
    server: AppServer, path: str, field: str, value: Any, neutral: Any
) -> None:
    base: dict[str, Any] = {"prompt": "x"} if path == COMPLETIONS else {"messages": HI}
    error = refuse(server.post(path, {**base, "max_tokens": 1, field: value}), param=field)
    assert error["message"].startswith(f"{field} is not supported: ")
    assert server.post(path, {**base, "max_tokens": 1, field: neutral}).status_code == 200


def test_fields_of_openais_clients_without_meaning_here_pass(server: AppServer) -> None:
    ignored = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "prompt_cache_key": "k",
    }
    assert server.post(CHAT, {"messages": HI, "max_tokens": 1, **ignored}).status_code == 200


WRONG_MESSAGES: list[tuple[Any, str]] = [
    ({"role": "wizard", "content": "x"}, "messages[0].role"),
    ({"content": "x"}, "messages[0].role"),
    ({"role": "user"}, "messages[0].content"),
    ({"role": "user", "content": {"a": 1}}, "messages[0].content"),
    ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
    ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
    ({"role": "assistant", "content": "x", "reasoning": 5}, "messages[0].reasoning"),
]


@pytest.mark.parametrize(("message", "param"), WRONG_MESSAGES, ids=str)
def test_wrong_messages_are_refused_by_path(server: AppServer, message: Any, param: str) -> None:
    refuse(server.post(CHAT, {"messages": [message]}), param=param)


@pytest.mark.parametrize("arguments", ["[]", "{bad", "5", [1]], ids=str)
def test_api_060_arguments_that_are_no_object(server: AppServer, arguments: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [*HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}]
    refuse(server.post(CHAT, {"messages": messages}), param="messages[1].tool_calls[0].function.arguments")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    ],
    ids=str,
)
def test_wrong_chat_fields_are_refused_by_name(server: AppServer, fields: Any, param: str) -> None:
    refuse(server.post(CHAT, {"messages": HI, **fields}), param=param)


def test_a_message_that_the_template_refuses_is_the_clients_error(server: AppServer) -> None:
    error = refuse(server.post(CHAT, {"messages": [{"role": "system", "content": "x"}]}), param="messages")
    assert "user query" in error["message"]


def test_api_035_the_official_client_shows_the_message(server: AppServer) -> None:
    messages: Any = HI
    long: Any = [{"role": "user", "content": "x" * 5000}]
    with server.client() as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError, match="no-such-model"):
            create(model="no-such-model", messages=messages)
        with pytest.raises(openai.BadRequestError, match="temperature"):
            create(model="scripted", messages=messages, temperature=-1)
        with pytest.raises(openai.BadRequestError, match="2048"):
            create(model="scripted", messages=long)


def test_api_035_a_full_queue_is_429() -> None:
    with serving(max_num_seqs=1, max_waiting_requests=1) as server:
        server.in_loop(server.scripted.client.hold)
        bodies = [{"prompt": "x", "max_tokens": 1, "stream": is_stream} for is_stream in (False, True) * 4]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(server.post, COMPLETIONS, body) for body in bodies]
            health = server.scripted.engine.health
            server.wait_until(lambda: health().num_pending == 8)
            server.in_loop(server.scripted.client.release)
            responses = [answer.result() for answer in answers]
        refused = [response for response in responses if response.status_code != 200]
        assert len(refused) == 6
        for response in refused:
            assert refuse(response, 429)["type"] == "rate_limit_error"
            assert response.headers["retry-after"]
        server.wait_until_idle()


def test_more_choices_than_can_wait_are_refused_before_anything_runs(server: AppServer) -> None:
    error = refuse(server.post(COMPLETIONS, {"prompt": [[1]] * 100, "n": 3}), param="prompt")
    assert "300" in error["message"]


def test_an_engine_that_dies_gives_every_client_an_end() -> None:
    with serving() as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        server.say(["a"] * 3000)
        client = server.scripted.client
        server.in_loop(client.hold)
        body = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True}
        has_begun = threading.Event()

        def read_stream() -> str:
            with streaming(server, body) as lines:
                next(lines)
                has_begun.set()
                return list(lines)[-1]

        whole, last = pool.submit(server.post, COMPLETIONS, body), pool.submit(read_stream)
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 2)
        server.in_loop(lambda: client.release(num_steps=20))
        assert has_begun.wait(60)
        server.in_loop(client.kill)
        error = json.loads(last.result(60).removeprefix("data: "))["error"]
        assert error["code"] == "engine_dead" and error["type"] == "server_error"
        refuse(whole.result(60), 503)
        refuse(server.post(COMPLETIONS, body), 503)
        assert server.http.get("/health").status_code == 503
        assert server.http.get("/ready").status_code == 503
