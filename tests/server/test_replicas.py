"""`qanat serve -dp 2`: two engines behind one address."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.test_run import ENDLESS, arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, error_of, wait_until
from tests.support.server_process import ServerProcess
from tests.support.startup_script import UNHURRIED, with_startup_script

pytestmark = pytest.mark.slow
SHORT = {"prompt": "x", "max_tokens": 5, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("script")


@pytest.fixture(scope="module")
def server(model: str, folder: Path) -> Iterator[ServerProcess]:  # noqa: F811
    flags = ("-dp", "2", "--restart-engine", "--max-engine-restarts", "2", "--max-model-len", "4096")
    environment = with_startup_script(folder, UNHURRIED)
    with ServerProcess(arguments(model, *flags), environment=environment) as running:
        yield running


@contextlib.contextmanager
def endless(server: ServerProcess, rank: int) -> Iterator[Iterator[str]]:
    """The lines of a stream that has begun on this replica."""
    with httpx.stream(
        "POST",
        f"{server.base_url}/v1/completions",
        json=ENDLESS,
        headers={"X-data-parallel-rank": str(rank)},
        timeout=WAIT_S,
    ) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        yield lines


def post(server: ServerProcess, rank: str | None = None) -> httpx.Response:
    headers = {} if rank is None else {"X-data-parallel-rank": rank}
    return httpx.post(f"{server.base_url}/v1/completions", json=SHORT, headers=headers, timeout=WAIT_S)


def metric(server: ServerProcess, name: str) -> dict[str, float]:
    """Values of a metric by the label `engine`."""
    text = server.get("/metrics").text
    found = re.findall(rf'^{name}{{[^}}]*engine="(\d+)"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return {rank: float(value) for rank, value in found}


def health(server: ServerProcess) -> httpx.Response:
    return server.get("/health")


def test_both_get_work_and_metrics_tell_them_apart(server: ServerProcess) -> None:
    before = metric(server, "vllm:generation_tokens_total")
    for _ in range(4):
        assert post(server).status_code == 200
    after = metric(server, "vllm:generation_tokens_total")
    assert {rank: after[rank] - before[rank] for rank in ("0", "1")} == {"0": 10.0, "1": 10.0}


def test_a_client_may_choose(server: ServerProcess) -> None:
    before = metric(server, "vllm:generation_tokens_total")
    texts = {post(server, rank).json()["choices"][0]["text"] for rank in ("1", "1", "0")}
    assert len(texts) == 1, "it does not matter to the answer"
    after = metric(server, "vllm:generation_tokens_total")
    assert {rank: after[rank] - before[rank] for rank in ("0", "1")} == {"0": 5.0, "1": 10.0}


@pytest.mark.parametrize(("rank", "part"), [("2", "there is: 0, 1"), ("-1", "number"), ("one", "number")])
def test_a_replica_that_there_is_not_is_refused(server: ServerProcess, rank: str, part: str) -> None:
    response = post(server, rank)
    assert response.status_code == 400
    assert part in response.json()["error"]["message"]


def test_one_dies_and_comes_back_while_the_other_serves(server: ServerProcess, folder: Path) -> None:
    (folder / "hold-start").touch()
    first = int(re.findall(r"Replica 0 serves, as process (\d+)", server.output)[0])
    with endless(server, 0) as dying, endless(server, 1) as living:
        os.kill(first, signal.SIGKILL)
        error = error_of(list(dying)[-1])
        assert error["code"] == "engine_dead" and "Replica 0" in error["message"]
        answer = health(server)
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert [one["status"] for one in answer.json()["replicas"]] == ["restarting", "ok"]
        assert server.get("/ready").status_code == 200
        assert post(server).status_code == 200
        refused = post(server, "0")
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        (folder / "hold-start").unlink()
        wait_until(lambda: health(server).json()["status"] == "ok")
        assert post(server, "0").status_code == 200
        assert metric(server, "qanat:engine_restarts_total") == {"0": 1.0, "1": 0.0}
        assert "error" not in next(living)
