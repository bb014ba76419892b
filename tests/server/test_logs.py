"""Log lines carry the request's id and never a prompt, as text and as JSON."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat.core.log_lines import JsonFormatter, TextFormatter, request_id_of_task
from qanat.server.logs import ACCESS_FIELDS, ACCESS_LOGGER, without_query
from tests.server.test_run import arguments, model  # noqa: F401
from tests.support.server_process import ServerProcess, run_command

SECRET = "the-words-of-a-prompt"


def record(message: str, *args: Any, name: str = "qanat.test", **more: Any) -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, __file__, 1, message, args, more.get("exc_info"))


def in_request(formatter: logging.Formatter, entry: logging.LogRecord) -> str:
    """The line that is written while a request is served."""

    def write() -> str:
        request_id_of_task.set("my-id")
        return formatter.format(entry)

    return contextvars.copy_context().run(write)


def test_a_json_line_is_one_object_whatever_the_message_holds() -> None:
    line = JsonFormatter().format(record("a %s", 'quote " and\nline\x00 é'))
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["message"] == 'a quote " and\nline\x00 é'
    assert (fields["level"], fields["logger"]) == ("warning", "qanat.test")
    assert fields["time"].endswith("Z") and fields["time"][10] == "T"
    assert "request_id" not in fields and "traceback" not in fields


def test_lines_of_a_request_carry_its_id() -> None:
    assert json.loads(in_request(JsonFormatter(), record("x")))["request_id"] == "my-id"
    assert in_request(TextFormatter(), record("x")) == "WARNING qanat.test: x [my-id]"
    assert TextFormatter().format(record("x")) == "WARNING qanat.test: x"


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        line = in_request(JsonFormatter(), record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    assert json.loads(line)["traceback"].endswith("ValueError: odd")


def test_access_lines_have_fields_and_no_query() -> None:
    args = ("127.0.0.1:5", "GET", f"/v1/models?prompt={SECRET}", "1.1", 200)
    entry = record('%s - "%s %s HTTP/%s" %d', *args, name=ACCESS_LOGGER)
    assert without_query(entry)
    fields = json.loads(JsonFormatter({ACCESS_LOGGER: ACCESS_FIELDS}).format(entry))
    assert fields["path"] == "/v1/models" and fields["status"] == 200 and fields["client"] == "127.0.0.1:5"
    assert SECRET not in TextFormatter().format(entry)
    assert '"GET /v1/models HTTP/1.1" 200' in TextFormatter().format(entry)


def ask_in_many_ways(url: str) -> None:
    """Requests that succeed, that are refused, and that fail in the template, all with the secret in them."""
    messages = [{"role": "user", "content": SECRET}]
    odd = [{"role": "tool", "content": SECRET}, {"role": SECRET, "content": SECRET}]
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": SECRET, "max_tokens": 2}),
        ("/v1/completions", {"prompt": SECRET, "max_tokens": 2, "stream": True, "echo": True}),
        ("/v1/completions", {"prompt": SECRET, "max_tokens": -2}),
        ("/v1/completions", {"prompt": [SECRET, 1]}),
        ("/v1/completions", {"prompt": SECRET * 10_000}),
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 2}),
        ("/v1/chat/completions", {"messages": odd}),
        ("/v1/chat/completions", {"messages": odd[:1], "max_tokens": 2}),
        ("/tokenize", {"prompt": SECRET}),
    ]
    for path, body in bodies:
        answer = httpx.post(url + path, json=body, headers={"X-Request-Id": "my-id"}, timeout=60)
        assert answer.status_code in (200, 400)
    httpx.post(url + "/v1/completions", content=b'{"prompt": "' + SECRET.encode(), timeout=60)
    httpx.get(url + "/v1/models", params={"prompt": SECRET}, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_prompt_is_logged_and_ids_are(model: str, log_format: str) -> None:  # noqa: F811
    flags = ("--log-format", log_format, "--log-level", "debug", "--uvicorn-log-level", "trace")
    with ServerProcess(arguments(model, *flags)) as process:
        ask_in_many_ways(process.base_url)
        process.stop()
        output = process.output
    assert SECRET not in output
    assert "/v1/completions" in output and "my-id" in output
    if log_format == "text":
        assert '"POST /v1/completions HTTP/1.1" 200 [my-id]' in output
        return
    lines = [json.loads(line) for line in output.splitlines()]
    assert any("OMP_NUM_THREADS" in line["message"] for line in lines)  # settled before the server started
    assert any("kernels" in line["message"] for line in lines)  # said by the engine's own process
    served = [line for line in lines if line.get("path") == "/tokenize"]
    assert [(line["status"], line["request_id"], line["method"]) for line in served] == [
        (200, "my-id", "POST")
    ]
    assert any(line["message"].startswith("Qanat serves") for line in lines)


@pytest.mark.parametrize(("flags", "code"), [((), 2), (("--load-format", "gguf"), 2)])
def test_a_start_that_fails_says_so_in_json(flags: tuple[str, ...], code: int, tmp_path: Path) -> None:
    result = run_command(["serve", str(tmp_path), "--port", "0", "--log-format", "json", *flags])
    assert result.returncode == code
    (line,) = [json.loads(line) for line in result.stderr.splitlines()]
    assert line["level"] == "critical" and line["message"].startswith("qanat serve: error: ")
