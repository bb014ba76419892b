"""The second start of a server, through the door: it maps what the first one has packed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat.kernels.native import module
from tests.support.server_process import ServerProcess, run_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not module.is_built(), reason="packed weights are those of the native kernels"),
]
KEPT = "Packed weights are kept for the next start"
MAPPED = re.compile(r"[\d.]+ MiB mapped packed")
DEADLINE_S = 60


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def server(model: Path, cache: Path, *arguments: str) -> ServerProcess:
    return ServerProcess([str(model), "--served-model-name", "demo", "--cache-dir", str(cache), *arguments])


def answer(running: ServerProcess) -> dict[str, Any]:
    body = {"model": "demo", "prompt": "What is 12 + 34?", "max_tokens": 16, "temperature": 0, "logprobs": 2}
    reply = httpx.post(f"{running.base_url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 200
    choice: dict[str, Any] = reply.json()["choices"][0]
    return {"text": choice["text"], "logprobs": choice["logprobs"]}


def await_line(running: ServerProcess, text: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while text not in running.output:
        assert time.monotonic() < deadline, running.output
        time.sleep(0.05)


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "packed").iterdir())


@pytest.fixture(scope="module")
def expected(demo_model: Path, cache: Path) -> dict[str, Any]:
    """The answer of a server that keeps nothing."""
    with server(demo_model, cache, "--no-packed-weights-cache") as running:
        wanted = answer(running)
    assert not (cache / "packed").exists()
    return wanted


def test_two_servers_start_at_once_and_the_next_maps_what_one_of_them_kept(
    demo_model: Path, cache: Path, expected: dict[str, Any]
) -> None:
    with server(demo_model, cache) as first, server(demo_model, cache) as second:
        assert answer(first) == answer(second) == expected
        deadline = time.monotonic() + DEADLINE_S
        while not any(KEPT in each.output or MAPPED.search(each.output) for each in (first, second)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    [name] = entries(cache)
    assert name.endswith(".packed")
    with server(demo_model, cache) as third:
        assert MAPPED.search(third.output) and KEPT not in third.output
        assert answer(third) == expected
        await_line(third, "Packed weights were copied to huge pages")
        assert answer(third) == expected
        report = json.loads(
            run_command(["doctor", "--cache-dir", str(cache), "--clear-cache", "--json"]).stdout
        )
        assert report["num_removed"] == 1 and report["in_use_bytes"] > 2**20 and report["freed_bytes"] == 0
        assert entries(cache) == []
        assert answer(third) == expected


def test_replicas_share_the_pages_and_a_damaged_entry_is_made_again(
    demo_model: Path, cache: Path, expected: dict[str, Any]
) -> None:
    with server(demo_model, cache) as first:
        await_line(first, KEPT)
    arguments = ("-dp", "2", "--num-threads", "1", "--cpu-binding")
    with server(demo_model, cache, *arguments) as both:
        assert len(MAPPED.findall(both.output)) == 2
        await_line(both, "the replicas of this host share the pages")
        assert re.search(r"--cpu-binding true -> (processors|false)", both.output)
        assert answer(both) == expected
    path = cache / "packed" / entries(cache)[0]
    with path.open("r+b") as file:
        file.truncate(1000)
    with server(demo_model, cache) as again:
        await_line(again, KEPT)
        assert "damaged and made again" in again.output
        assert answer(again) == expected
    assert [name.rpartition(".")[2] for name in entries(cache)] == ["bad", "packed"]
    verified = run_command(["doctor", "--cache-dir", str(cache), "--verify-cache"])
    assert verified.returncode == 0 and "1 read" in verified.stdout and "none damaged" in verified.stdout


def test_a_folder_that_cannot_be_private_means_no_cache_and_a_decision(
    demo_model: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    (tmp_path / "packed").mkdir(mode=0o755)
    (tmp_path / "packed").chmod(0o755)
    with server(demo_model, tmp_path) as running:
        assert answer(running) == expected
        assert "--packed-weights-cache true -> false" in running.output and "chmod 700" in running.output
    assert entries(tmp_path) == []
