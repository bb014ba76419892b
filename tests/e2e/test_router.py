"""Two real servers of the demo model behind `qanat router`: one dies in mid-stream, and no client notices."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.router.routing import comparable, ids_of
from tests.support.server_process import COMMAND, ServerProcess
from tests.support.startup_script import PACED, with_startup_script

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
QUESTION = [{"role": "user", "content": "What is 17 + 25? Explain."}]
USAGE = {"stream_options": {"include_usage": True}}
NUM_TOKENS = 160
LONG = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "stream": True}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (CHAT, {"messages": QUESTION, "temperature": 0, **USAGE}),
    "drawn": (CHAT, {"messages": QUESTION, "temperature": 1, "seed": 11, **USAGE}),
    "two choices": (COMPLETIONS, {"prompt": "17 + 25 =", "temperature": 1, "seed": 3, "n": 2, **USAGE}),
}


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """While it is there the engines are in no hurry, so that none has written everything before it is ended."""
    return tmp_path / "slow"


@pytest.fixture
def engines(demo_model: Path, slow: Path) -> Iterator[list[ServerProcess]]:
    environment = with_startup_script(slow.parent, PACED)
    arguments = [str(demo_model), "--served-model-name", "demo", "--allow-resume", "--max-model-len", "1024"]
    with (
        ServerProcess(arguments, environment=environment) as first,
        ServerProcess(arguments, environment=environment) as second,
    ):
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


def lanes(stream: bytes) -> dict[Any, Any]:
    """What each choice says, in its order; between choices there is none. The last one's times are left out.

    A server joins tokens that wait for a slow client in one event: neighbours that differ in their text alone are one.
    """
    sorted_out: dict[Any, list[Any]] = {}
    for event in comparable(stream):
        data = json.loads(event[6:]) if event.startswith(b"data: {") else event
        choices = data.get("choices") if isinstance(data, dict) else None
        if isinstance(data, dict):
            data.pop("timing", None)
        lane = sorted_out.setdefault(choices[0]["index"] if choices else "end", [])
        texts = texts_of(choices[0]) if choices else {}
        if choices and lane and lane[-1][0] == data and lane[-1][1].keys() == texts.keys():
            lane[-1] = (data, {name: lane[-1][1][name] + text for name, text in texts.items()})
        else:
            lane.append((data, texts))
    return sorted_out


def texts_of(choice: dict[str, Any]) -> dict[str, str]:
    """Takes the texts out of a choice of an event."""
    place = choice.get("delta", choice)
    names = [name for name in ("content", "reasoning", "reasoning_content", "text") if place.get(name)]
    return {name: place.pop(name) for name in names}


@pytest.mark.parametrize(
    ("ending", "name"),
    [
        (die, "drawn"),
        *(pytest.param(die, name, marks=pytest.mark.slow) for name in ("greedy", "two choices")),
        *(pytest.param(die_inside, name, marks=pytest.mark.slow) for name in ASKED),
    ],
)
def test_a_stream_outlives_its_engine(
    engines: list[ServerProcess], router: ServerProcess, slow: Path, log: Path, name: str, ending: Any
) -> None:
    path, body = ASKED[name]
    body = {"model": "demo", **body, **LONG}
    expected = httpx.post(engines[0].base_url + path, json=body, timeout=120).content
    received = b""
    slow.touch()
    with httpx.stream("POST", router.base_url + path, json=body, timeout=120) as response:
        assert response.status_code == 200
        server = response.headers["x-qanat-router"]
        (serving,) = [engine for engine in engines if f":{engine.port};" in server]
        for data in response.iter_raw():
            if received.count(b"\n\n") < 9 <= (received + data).count(b"\n\n"):
                ending(serving)
                slow.unlink()
            received += data
    assert lanes(received) == lanes(expected)
    assert b'"completion_tokens":%d,' % (NUM_TOKENS * body.get("n", 1)) in received
    ids, dates = ids_of(received)
    assert len(ids) == len(dates) == 1
    assert router.stop() == 0
    (line,) = [line for line in log.read_text().splitlines() if path in line]
    assert json.loads(line)["continued"] == 1
