"""/start_profile and /stop_profile over a real server: files, states, keys, and what happens when things go wrong."""

from __future__ import annotations

import gzip
import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat.config.engine_config import ServerOptions
from qanat.config.profiler import ProfilerSettings
from tests.server.test_run import ENDLESS, arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, wait_until
from tests.support.app_server import serving
from tests.support.server_process import ServerProcess

KEY = {"Authorization": "Bearer operator"}
BODY = {"prompt": "x", "max_tokens": 5, "ignore_eos": True}


def test_without_a_folder_the_routes_say_that_profiling_is_off() -> None:
    with serving(ServerOptions(admin_api_key=("operator",))) as server:
        for path in ("/start_profile", "/stop_profile"):
            response = server.http.post(path, headers=KEY)
            assert response.status_code == 409
            error = response.json()["error"]
            assert error["code"] == "profiler_state" and "--profiler-config" in error["message"]
            assert server.http.post(path).status_code in (401, 403)
            assert server.http.get(path, headers=KEY).status_code == 405


def test_of_a_dead_engine_the_routes_say_that_it_is_dead(tmp_path: Path) -> None:
    profiler = ProfilerSettings(str(tmp_path))
    with serving(ServerOptions(admin_api_key=("operator",)), profiler=profiler) as server:
        server.in_loop(server.scripted.client.kill)
        server.wait_until(lambda: not server.scripted.engine.health().is_alive)
        for path in ("/start_profile", "/stop_profile"):
            response = server.http.post(path, headers=KEY)
            assert response.status_code == 503 and response.headers["retry-after"]
            assert response.json()["error"]["code"] == "engine_dead"


class Profiled:
    """A real server with an operator's key and a folder for profiles."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def post(self, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
        response = httpx.post(self.server.base_url + path, json=body, headers=KEY, timeout=WAIT_S)
        assert response.status_code == status, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def generate(self) -> None:
        assert self.post("/v1/completions", BODY)["usage"]["completion_tokens"] == 5


def start(model: str, folder: Path, **config: Any) -> ServerProcess:  # noqa: F811
    value = json.dumps({"torch_profiler_dir": str(folder), **config})
    return ServerProcess(arguments(model, "--admin-api-key", "operator", "--profiler-config", value))


@pytest.fixture(scope="module")
def profiled(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profiled]:  # noqa: F811
    folder = tmp_path_factory.mktemp("work") / "profiles"
    with start(model, folder) as server:
        yield Profiled(server, folder)


@pytest.mark.slow
def test_a_profile_from_start_to_stop(profiled: Profiled) -> None:
    # What clients of vLLM send along, and what an attacker might, is not read.
    odd = {"prompt": "x", "torch_profiler_dir": "../elsewhere", "file": "../../x"}
    started = profiled.post("/start_profile", odd)
    assert started["status"] == "recording" and started["kinds"] == ["torch", "ops"]
    profiled.generate()
    ended = profiled.post("/stop_profile")
    assert (ended["status"], ended["ended_by"], ended["num_steps"]) == ("written", "request", 5)
    assert {Path(path) for path in ended["files"]} == set(profiled.folder.iterdir())
    assert profiled.folder.stat().st_mode & 0o777 == 0o700
    ops = next(path for path in ended["files"] if ".ops." in path)
    events = json.loads(gzip.decompress(Path(ops).read_bytes()))["traceEvents"]
    assert sum(event["cat"] == "op" for event in events) == ended["num_op_calls"] > 0


@pytest.mark.slow
def test_the_order_is_checked_and_nothing_is_lost(profiled: Profiled) -> None:
    error = profiled.post("/stop_profile", status=409)["error"]
    assert error["code"] == "profiler_state" and "/start_profile" in error["message"]
    profiled.post("/start_profile")
    assert "already" in profiled.post("/start_profile", status=409)["error"]["message"]
    profiled.generate()
    assert profiled.post("/stop_profile")["num_steps"] == 5
    profiled.post("/stop_profile", status=409)


@pytest.mark.slow
def test_streams_go_on_while_profiles_are_taken(profiled: Profiled) -> None:
    url = f"{profiled.server.base_url}/v1/completions"
    body = {**ENDLESS, "max_tokens": 200}
    with httpx.stream("POST", url, json=body, timeout=WAIT_S, headers=KEY) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        for _ in range(2):
            profiled.post("/start_profile")
            next(lines)
            profiled.post("/stop_profile")
        assert list(lines)[-1] == "data: [DONE]"


@pytest.mark.slow
def test_a_full_disk_is_told_and_the_server_lives(profiled: Profiled) -> None:
    """No file of the core's process may grow beyond some bytes, which is what a full disk comes to."""
    (core_pid,) = profiled.server.child_pids()
    files = set(profiled.folder.iterdir())
    before = resource.prlimit(core_pid, resource.RLIMIT_FSIZE)
    profiled.post("/start_profile")
    profiled.generate()
    resource.prlimit(core_pid, resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        error = profiled.post("/stop_profile", status=500)["error"]
        assert error["code"] == "profile_not_written" and str(profiled.folder) in error["message"]
        profiled.generate()
    finally:
        resource.prlimit(core_pid, resource.RLIMIT_FSIZE, before)
    assert set(profiled.folder.iterdir()) == files
    profiled.post("/start_profile")
    profiled.generate()
    assert len(profiled.post("/stop_profile")["files"]) == 2


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_told_and_the_server_lives(model: str, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "file").write_text("x")
    with start(model, tmp_path / "file" / "profiles") as server:
        profiled = Profiled(server, tmp_path)
        error = profiled.post("/start_profile", status=500)["error"]
        assert error["code"] == "profile_not_written" and "torch_profiler_dir" in error["message"]
        profiled.generate()


@pytest.mark.slow
def test_a_profile_that_nobody_ends_ends_by_itself_also_when_nothing_runs(
    model: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    with start(model, tmp_path, profiler="ops", max_duration_s=1) as server:
        profiled = Profiled(server, tmp_path)
        profiled.post("/start_profile")
        profiled.generate()
        wait_until(lambda: "The profile ended (max_duration_s)" in server.output)
        ended = profiled.post("/stop_profile")
        assert ended["ended_by"] == "max_duration_s"
        assert [Path(path) for path in ended["files"]] == list(tmp_path.iterdir())
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0
