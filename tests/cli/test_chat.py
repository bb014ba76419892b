"""`qanat chat` against the real server over a scripted model, and once with a model of its own."""

from __future__ import annotations

import contextlib
import io
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from qanat.cli import chat
from qanat.cli.chat_client import ChatClient, ServerError
from qanat.cli.main import main
from qanat.config.engine_config import ServerOptions
from tests.config.tiny_folder import write_model
from tests.support.app_server import AppServer, serving

ANSWER = ["<think>", "\n", "add them", "\n", "</think>", "\n\n", "It is ", "42", "."]


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def server() -> Iterator[AppServer]:
    with serving() as running:
        yield running


def type_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_a_question_gets_its_answer_and_nothing_else(
    server: AppServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.say(ANSWER)
    assert main(["chat", "--url", server.url, "--max-tokens", "50", "What is", "40 + 2?"]) == 0
    assert capsys.readouterr().out == "It is 42.\n"
    server.wait_until_idle()


def test_a_terminal_sees_the_thinking_dimmed(server: AppServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.say(ANSWER)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["chat", "--url", server.url, "What is 40 + 2?"]) == 0
    shown = terminal.getvalue()
    thinking, _, answer = shown.partition(chat.PLAIN)
    assert thinking.startswith(chat.DIM) and "add them" in thinking
    assert answer.strip() == "It is 42."
    assert shown.endswith("\n")


def test_a_conversation_remembers_forgets_and_ends(
    server: AppServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.say(["</think>", "yes"])
    sent: list[list[dict[str, str]]] = []
    stream = ChatClient.stream

    def recording(self: ChatClient, body: dict[str, Any]) -> Any:
        sent.append([dict(message) for message in body["messages"]])
        return stream(self, body)

    monkeypatch.setattr(ChatClient, "stream", recording)
    type_in(monkeypatch, "first", "", "second", "/what", "/reset", "third", "/exit", "never")
    assert main(["chat", "--url", server.url, "--system", "be brief"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "yes\nyes\nyes\n"
    assert "/what is no command" in captured.err
    assert [[message["content"] for message in messages] for messages in sent] == [
        ["be brief", "first"],
        ["be brief", "first", "yes", "second"],
        ["be brief", "third"],
    ]


def test_an_answer_that_was_cut_off_says_so(server: AppServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.say(["</think>", *"abcdef"])
    assert main(["chat", "--url", server.url, "--max-tokens", "3", "go"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "ab\n" and "cut off" in captured.err


def test_settings_reach_the_server(server: AppServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.say(["yes"])
    bodies: list[dict[str, Any]] = []
    stream = ChatClient.stream

    def recording(self: ChatClient, body: dict[str, Any]) -> Any:
        bodies.append(body)
        return stream(self, body)

    monkeypatch.setattr(ChatClient, "stream", recording)
    url = ["chat", "--url", server.url]
    assert main([*url, "--no-thinking", "--temperature", "0", "--max-tokens", "9", "hi"]) == 0
    assert main([*url, "hi"]) == 0
    for body in bodies:
        assert body.pop("messages") == [{"role": "user", "content": "hi"}]
    name = bodies[1].pop("model")
    assert bodies[1] == {}
    assert bodies[0] == {
        "model": name,
        "temperature": 0.0,
        "max_tokens": 9,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_an_error_of_the_server_is_one_line(server: AppServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", server.url, "-m", "no-such-model", "hi"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("qanat chat: error: ") and "404" in error and "no-such-model" in error


def test_a_conversation_outlives_an_error(
    server: AppServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(monkeypatch, "one", "two")
    assert main(["chat", "--url", server.url, "-m", "no-such-model"]) == 0
    assert capsys.readouterr().err.count("no-such-model") == 2


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", "http://127.0.0.1:9", "hi"]) == 1
    assert "http://127.0.0.1:9 cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--api-key", "right"]])
def test_keys(flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ServerOptions(api_key=("right",))) as running:
        running.say(["</think>", "in"])
        assert main(["chat", "--url", running.url, *flags, "hi"]) == (0 if flags else 1)
        assert ("in\n" if flags else "401") in "".join(capsys.readouterr())
        monkeypatch.setenv("VLLM_API_KEY", "right")
        assert main(["chat", "--url", running.url, "hi"]) == 0


def test_engine_flags_with_a_url_are_named(server: AppServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.say(["</think>", "in"])
    assert main(["chat", "--url", f"{server.url}/v1/", "--dtype", "float32", "--swap-space", "4", "hi"]) == 0
    assert "--dtype, --swap-space -> no effect: with --url" in capsys.readouterr().err


def test_an_answer_that_is_given_up_is_aborted(server: AppServer) -> None:
    server.say(["</think>", *["on "] * 2000])
    client = ChatClient(server.url)
    deltas = client.stream({"model": client.model_name(), "messages": [{"role": "user", "content": "go"}]})
    while not next(deltas).text:
        pass
    deltas.close()
    server.wait_until_idle()


def read_whole(rfile: BinaryIO) -> None:
    """Reads a request to its end: who closes a connection with anything unread resets it, the answer included."""
    num_left = 0
    while line := rfile.readline().strip():
        name, _, value = line.partition(b":")
        num_left = int(value) if name.lower() == b"content-length" else num_left
    rfile.read(num_left)


def test_a_stream_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    class Half(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            read_whole(self.rfile)
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n'
            )

    with socketserver.TCPServer(("127.0.0.1", 0), Half) as half:
        threading.Thread(target=half.serve_forever, daemon=True).start()
        deltas = ChatClient(f"http://127.0.0.1:{half.server_address[1]}").stream({"messages": []})
        assert next(deltas).text == "half"
        with pytest.raises(ServerError, match="broke off"):
            next(deltas)
        half.shutdown()


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that says the same to everyone."""

    class Fixed(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            read_whole(self.rfile)
            self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Fixed) as fixed:
        threading.Thread(target=fixed.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{fixed.server_address[1]}"
        fixed.shutdown()


def http_answer(body: str, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + body.encode()


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no HTTP"),
        (b"", "closed"),
        (http_answer("<html>Welcome</html>", kind="text/html"), "<html>Welcome"),
        (http_answer(""), "OpenAI API"),
        (http_answer("[1]"), "OpenAI API"),
        (http_answer("{}"), "OpenAI API"),
        (http_answer('{"data": []}'), "OpenAI API"),
        (http_answer('{"data": [{}]}'), "OpenAI API"),
        (http_answer("cut", more="Content-Length: 99\r\n"), "broke off"),
        (http_answer("cut", "500 Oops", more="Content-Length: 99\r\n"), "broke off"),
        (http_answer("moved", "302 Found"), "302"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n\xff\xfe", "OpenAI API"),
    ],
    ids=str,
)
def test_a_server_of_another_kind_is_one_line(
    answer: bytes, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(answer) as address:
        assert main(["chat", "--url", address, "hi"]) == 1
        error = capsys.readouterr().err
    assert error.startswith("qanat chat: error: ") and error.count("\n") == 1
    assert address in error and word in error


@pytest.mark.parametrize(
    "events",
    [
        "<html>Welcome</html>",
        "data: <html>\n\n",
        "data: 7\n\n",
        "data: {}\n\n",
        'data: {"choices": [{}]}\n\n',
        'data: {"choices": [{"delta": {"content": 7}}]}\n\n',
        'data: {"error": "too busy"}\n\n',
    ],
    ids=str,
)
def test_events_of_another_kind_are_one_line(events: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(http_answer(events, kind="text/event-stream")) as address:
        assert main(["chat", "--url", address, "-m", "any", "hi"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("qanat chat: error: ") and error.count("\n") == 1
    assert "too busy" in error if "too busy" in events else "OpenAI API" in error


@pytest.mark.parametrize(
    "flags",
    [
        ["--url", "http://127.0.0.1:9/a path"],
        ["--url", "http://no such host"],
        ["--url", "http://two..dots"],
    ],
    ids=str,
)
def test_an_address_that_cannot_be_reached_is_one_line(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", *flags, "hi"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("qanat chat: error: ") and error.count("\n") == 1


@pytest.mark.parametrize("key", ["two\nlines", "\u00fcber\u20ac"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", "http://127.0.0.1:9", "--api-key", key, "hi"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--api-key" in error
    assert key not in error and "two" not in error


def test_half_an_ipv6_address_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", "http://[::1", "hi"]) == 2
    assert "--url http://[::1" in capsys.readouterr().err


def test_a_model_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write_model(tmp_path / "model"))
    flags = [
        "-m",
        model,
        "--load-format",
        "dummy",
        "--kv-cache-memory-bytes",
        "64MiB",
        "--max-model-len",
        "512",
    ]
    assert main(["chat", *flags, "--max-tokens", "4", "--verbose", "hi"]) == 0
    captured = capsys.readouterr()
    assert not captured.out or captured.out.endswith("\n")  # random weights may say nothing that can be shown
    assert f"loading {model}" in captured.err and "--max-num-seqs" in captured.err


def test_a_model_that_cannot_be_loaded_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_model(tmp_path / "model"))
    assert main(["chat", "-m", model, "hi"]) == 2
    assert "qanat chat: error: " in capsys.readouterr().err
