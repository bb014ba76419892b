"""The list of the issue, item by item, on every path that reads a body: a clear 4xx, and a server that lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from qanat.config.engine_config import ServerOptions
from tests.server.test_errors import refuse
from tests.support.app_server import AppServer, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
ADMIN = {"Authorization": "Bearer admin-key"}
BASES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "x", "max_tokens": 1},
    CHAT: {"messages": HI, "max_tokens": 1},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [65]},
}
GENERATING = [COMPLETIONS, CHAT]
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module", autouse=True)
def _lives_on(server: AppServer) -> Iterator[None]:
    yield
    for path, body in BASES.items():
        assert server.post(path, body).status_code == 200
    server.wait_until_idle()


def send(server: AppServer, path: str, content: bytes) -> httpx.Response:
    return server.http.post(path, content=content, headers=JSON)


RAW = {
    "invalid json": b'{"prompt": ',
    "two values": b"{} {}",
    "single quotes": b"{'prompt': 'x'}",
    "no quotes": b"{prompt: 1}",
    "comment": b'{"prompt": "x" /* why */}',
    "not a number": b'{"prompt": "x", "temperature": NaN}',
    "infinite": b'{"prompt": "x", "temperature": -Infinity}',
    "bad utf-8": b'{"prompt": "\xff"}',
    "overlong utf-8": b'{"prompt": "\xc0\xaf"}',
    "surrogate in utf-8": b'{"prompt": "\xed\xa0\x80"}',
    "cut utf-8": b'{"prompt": "\xf0\x9f\x98"}',
    "utf-16": '{"prompt": "x"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"prompt": "x"}',
    "bad escape": b'{"prompt": "\\x"}',
    "lone surrogate": b'{"prompt": "\\ud800"}',
    "control character": b'{"prompt": "a\x01b"}',
    "null byte": b"\x00",
    "deep lists": b'{"prompt": ' + b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
}


@pytest.mark.parametrize("path", BASES)
@pytest.mark.parametrize("name", RAW)
def test_bodies_that_are_not_json_in_utf_8(server: AppServer, path: str, name: str) -> None:
    response = send(server, path, RAW[name])
    refuse(response, param=response.json()["error"]["param"])


@pytest.mark.parametrize("path", BASES)
@pytest.mark.parametrize("body", [[], "x", 1, None, True, {}], ids=str)
def test_bodies_that_are_no_object_or_lack_everything(server: AppServer, path: str, body: Any) -> None:
    response = send(server, path, json.dumps(body).encode())
    refuse(response, param=response.json()["error"]["param"])


WRONG = [{"a": 1}, [None], -1, 2**64, True, "\u0000"]


@pytest.mark.slow
@pytest.mark.parametrize("path", BASES)
def test_every_field_with_values_of_every_other_type(server: AppServer, path: str) -> None:
    document = server.http.get("/openapi.json").json()
    operation = document["paths"][path]["post"]
    name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    for field in document["components"]["schemas"][name]["properties"]:
        for value in WRONG:
            content = json.dumps({**BASES[path], field: value}).replace("Infinity", "1e400").encode()
            response = send(server, path, content)
            assert response.status_code in (200, 400, 403, 404), (field, value, response.text)
            if response.status_code != 200:
                error = response.json()["error"]
                assert error["message"] and error["code"], (field, value)


@pytest.mark.parametrize("path", GENERATING)
def test_negative_temperature(server: AppServer, path: str) -> None:
    error = refuse(server.post(path, {**BASES[path], "temperature": -0.1}), param="temperature")
    assert "-0.1" in error["message"]


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_longer_than_the_window(server: AppServer, path: str, is_stream: bool) -> None:
    long = "word " * 1000
    field = {"prompt": long} if path == COMPLETIONS else {"messages": [{"role": "user", "content": long}]}
    error = refuse(server.post(path, {**BASES[path], **field, "stream": is_stream}), param=next(iter(field)))
    assert error["code"] == "context_length_exceeded" and "2048" in error["message"]


@pytest.mark.parametrize("path", BASES)
def test_an_unknown_model(server: AppServer, path: str) -> None:
    error = refuse(server.post(path, {**BASES[path], "model": "gpt-9"}), 404, param="model")
    assert error["code"] == "model_not_found" and "scripted" in error["message"]


@pytest.mark.parametrize("path", GENERATING)
def test_an_empty_prompt(server: AppServer, path: str) -> None:
    field = {"prompt": ""} if path == COMPLETIONS else {"messages": []}
    refuse(server.post(path, {**BASES[path], **field}), param=next(iter(field)))


@pytest.mark.parametrize("path", GENERATING)
def test_a_body_of_ten_megabytes(server: AppServer, path: str) -> None:
    text = "x" * 10_000_000
    field = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
    error = refuse(server.post(path, {**BASES[path], **field}), param=next(iter(field)))
    assert error["code"] == "context_length_exceeded"
    junk = b'{"metadata": {' + b",".join(b'"k%d": %d' % (i, i) for i in range(600_000)) + b"}}"
    refuse(send(server, path, junk), param=next(iter(field)))


@pytest.mark.parametrize("path", [*BASES, "/abort"])
def test_a_body_over_the_limit(path: str) -> None:
    with serving(ServerOptions(max_request_bytes=1000, admin_api_key=("admin-key",))) as server:
        body = b'{"prompt": "' + b"x" * 10_000_000 + b'"}'
        error = refuse(server.http.post(path, content=body, headers={**JSON, **ADMIN}), 413)
        assert "--max-request-bytes" in error["message"]
        if path in BASES:
            assert server.post(path, BASES[path]).status_code == 200


@pytest.mark.parametrize("path", GENERATING)
def test_too_many_allowed_tokens_for_all_choices(server: AppServer, path: str) -> None:
    fields = {**BASES[path], "n": 128, "allowed_token_ids": list(range(2049))}
    error = refuse(server.post(path, fields), param="allowed_token_ids")
    assert "2049 for each of 128" in error["message"]


def test_too_many_allowed_tokens_for_all_prompts(server: AppServer) -> None:
    fields = {"prompt": [[1]] * 129, "max_tokens": 1, "allowed_token_ids": list(range(2048))}
    error = refuse(server.post(COMPLETIONS, fields), param="allowed_token_ids")
    assert str(129 * 2048) in error["message"]


@pytest.mark.parametrize("token_id", [-1, 8192, 2**31, 2**32 + 1, 2**63, 10**40])
def test_ids_out_of_range(server: AppServer, token_id: int) -> None:
    for path, field, value in (
        (COMPLETIONS, "prompt", [1, token_id]),
        (COMPLETIONS, "stop_token_ids", [token_id]),
        (COMPLETIONS, "allowed_token_ids", [token_id]),
        (COMPLETIONS, "logit_bias", {str(token_id): 1}),
        (CHAT, "stop_token_ids", [token_id]),
        (CHAT, "logit_bias", {str(token_id): 1}),
        ("/detokenize", "tokens", [65, token_id]),
    ):
        response = server.post(path, {**BASES[path], field: value})
        if field == "stop_token_ids" and token_id >= 0 and response.status_code == 200:
            continue  # an id that never comes ends nothing
        error = response.json()["error"]
        refuse(response, param=error["param"])
        assert error["param"].startswith(field), (path, field)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"oneOf": [schema, {"type": "object", "properties": {"a": schema}, "required": ["a"]}]}
    return schema


BOMBS: dict[str, dict[str, Any]] = {
    "doubling alternatives": nested(16),
    "deep": {"type": "object", "properties": {}},
    "doubling references": {
        "$ref": "#/$defs/a0",
        "$defs": {
            **{f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(30)},
            "a30": {"type": "integer"},
        },
    },
    "endless": {"$ref": "#"},
    "many items": {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
    "long text": {"type": "string", "minLength": 10**9},
    "pattern": {"type": "string", "pattern": "(a{1000}){1000}"},
    "wide": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(20_000)}},
    "no schema": {"type": "nonsense"},
}
for _ in range(300):
    BOMBS["deep"] = {"type": "array", "items": BOMBS["deep"]}


@pytest.mark.parametrize("name", BOMBS)
def test_schema_bombs(server: AppServer, name: str) -> None:
    schema_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": BOMBS[name]}}
    body = {**BASES[CHAT], "max_tokens": 4, "response_format": schema_format}
    response = server.post(CHAT, body)
    assert response.status_code in (200, 400), response.text
    if response.status_code == 400:
        refuse(response, param=response.json()["error"]["param"])
    assert server.post(CHAT, BASES[CHAT]).status_code == 200
