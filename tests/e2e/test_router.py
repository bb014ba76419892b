"""Two real servers of the demo model behind `qanat router`: one dies in mid-stream, and no client notices."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.router.routing import comparable, ids_of
from tests.support.server_process import COMMAND, ServerProcess

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
QUESTION = [{"role": "user", "content": "What is 17 + 25? Explain."}]
USAGE = {"stream_options": {"include_usage": True}}
LONG = {"max_tokens": 160, "ignore_eos": True, "stream": True}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (CHAT, {"messages": QUESTION, "temperature": 0, **USAGE}),
    "drawn": (CHAT, {"messages": QUESTION, "temperature": 1, "seed": 11, **USAGE}),
    "two choices": (COMPLETIONS, {"prompt": "17 + 25 =", "temperature": 1, "seed": 3, "n": 2, **USAGE}),
}


@pytest.fixture
def engines(demo_model: Path) -> Iterator[list[ServerProcess]]:
    arguments = [str(demo_model), "--served-model-name", "demo", "--allow-resume", "--max-model-len", "1024"]
    arguments += ["--dtype", "float32"]  # in which what is read at once and one by one has no near draws
    with ServerProcess(arguments) as first, ServerProcess(arguments) as second:
        yield [first, second]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.jsonl"


@pytest.fixture
def router(engines: list[ServerProcess], log: Path) -> Iterator[ServerProcess]:
    urls = [engine.base_url for engine in engines]
    with ServerProcess([*urls, "--access-log", str(log)], command=[*COMMAND, "router"]) as running:
        yield running


def die(engine: ServerProcess) -> None:
    """The server and its engine are gone at once."""
    assert engine.process is not None
    os.killpg(engine.process.pid, signal.SIGKILL)
    engine.process.wait()


def die_inside(engine: ServerProcess) -> None:
    """The engine's process dies, and the server says so in its streams."""
    (core_pid,) = engine.child_pids()
    os.kill(core_pid, signal.SIGKILL)


def lanes(stream: bytes) -> dict[Any, list[bytes]]:
    """The events of each choice in their order; between choices there is none. The last one's times are left out."""
    sorted_out: dict[Any, list[bytes]] = {}
    for event in comparable(stream):
        match = re.search(rb'"choices":\[\{"index":(\d+)', event)
        event = event.replace(b',"timing":{}', b"")
        sorted_out.setdefault(int(match.group(1)) if match else "end", []).append(event)
    return sorted_out


CHANGED = pytest.mark.xfail(
    reason="drawn tokens may change behind the break: docs/router-continuation.md", strict=False
)


@pytest.mark.parametrize(
    ("ending", "name"),
    [
        (die, "greedy"),
        pytest.param(die_inside, "greedy", marks=pytest.mark.slow),
        *(
            pytest.param(ending, name, marks=(pytest.mark.slow, CHANGED))
            for ending in (die, die_inside)
            for name in ("drawn", "two choices")
        ),
    ],
)
def test_a_stream_outlives_its_engine(
    engines: list[ServerProcess], router: ServerProcess, log: Path, name: str, ending: Any
) -> None:
    path, body = ASKED[name]
    body = {"model": "demo", **body, **LONG}
    expected = httpx.post(engines[0].base_url + path, json=body, timeout=120).content
    received = b""
    with httpx.stream("POST", router.base_url + path, json=body, timeout=120) as response:
        assert response.status_code == 200
        server = response.headers["x-qanat-router"]
        (serving,) = [engine for engine in engines if f":{engine.port};" in server]
        for data in response.iter_raw():
            if received.count(b"\n\n") < 9 <= (received + data).count(b"\n\n"):
                ending(serving)
            received += data
    assert lanes(received) == lanes(expected)
    assert b'"completion_tokens":%d,' % (160 * body.get("n", 1)) in received
    ids, dates = ids_of(received)
    assert len(ids) == len(dates) == 1
    assert router.stop() == 0
    (line,) = [line for line in log.read_text().splitlines() if path in line]
    assert json.loads(line)["continued"] == 1
