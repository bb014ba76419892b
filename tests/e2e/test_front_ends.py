"""--api-server-count: several real server processes behind one port, and the deaths of each kind of process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat.server.web.page import read_files
from tests.e2e.test_processes import gauge, holds_within, is_running
from tests.support.server_process import ServerProcess
from tests.support.startup_script import UNHURRIED, with_startup_script

pytestmark = pytest.mark.slow
WAIT_S = 180.0
MAX_TRIES = 200
FRONT_END, CORE = "qanat.server.front_ends.process", "qanat.engine.core_process"
ENDLESS = {"prompt": "1", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
SHORT = {"prompt": "1 + 1 =", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


class Server(ServerProcess):
    """Is used once every front end serves: the first answers while the parent may still await the others."""

    def __enter__(self) -> Server:
        super().__enter__()
        assert holds_within(WAIT_S, lambda: "Qanat serves " in self.output)
        return self


def arguments(model: Path, *more: str) -> list[str]:
    flags = ("--served-model-name", "demo", "--num-threads", "1", "--kv-cache-memory-bytes", "192MiB")
    return [str(model), "--api-server-count", "2", *flags, *more]


def pids(server: ServerProcess, module: str) -> list[int]:
    """Children of the server that run this module."""
    found = []
    for pid in server.child_pids():
        with contextlib.suppress(OSError):
            if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def front_end_of(server: ServerProcess, response: httpx.Response) -> int:
    """Number of the front end that answers, from the line of its access log."""
    _, port = response.extensions["network_stream"].get_extra_info("client_addr")
    line = re.compile(rf'\[front end (\d+)\] 127\.0\.0\.1:{port} - "')
    assert holds_within(WAIT_S, lambda: line.search(server.output) is not None)
    found = line.search(server.output)
    assert found is not None
    return int(found[1])


def until_each(server: ServerProcess, one_try: Callable[[], int], num_front_ends: int = 2) -> None:
    """Tries until so many front ends have had one; each connection goes to whichever takes it first."""
    seen: set[int] = set()
    for _ in range(MAX_TRIES):
        seen.add(one_try())
        if len(seen) == num_front_ends:
            return
    raise AssertionError(f"{MAX_TRIES} connections, and only {seen} had any")


@contextlib.contextmanager
def streams_at_each(server: ServerProcess, rank: int | None = None) -> Iterator[dict[int, Iterator[str]]]:
    """Endless streams that have begun, one at each front end, by its number; what comes on each."""
    headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
    with contextlib.ExitStack() as stack:
        streams: dict[int, Iterator[str]] = {}

        def one_try() -> int:
            own = stack.enter_context(contextlib.ExitStack())
            client = own.enter_context(httpx.Client(timeout=WAIT_S, headers=headers))
            url = f"{server.base_url}/v1/completions"
            response = own.enter_context(client.stream("POST", url, json=ENDLESS))
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            number = front_end_of(server, response)
            if number in streams:
                own.close()
            else:
                streams[number] = lines
            return number

        until_each(server, one_try)
        yield streams


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return with_startup_script(tmp_path_factory.mktemp("script"), UNHURRIED)


def test_both_serve_the_same_and_count_as_one(demo_model: Path) -> None:
    one = [flag for flag in arguments(demo_model) if flag not in ("--api-server-count", "2")]
    with ServerProcess(one) as server:
        assert not pids(server, FRONT_END) and len(pids(server, CORE)) == 1
        expected = httpx.post(f"{server.base_url}/v1/completions", json=SHORT, timeout=WAIT_S).json()
    with Server(arguments(demo_model, "--admin-api-key", "boss")) as server:
        assert len(pids(server, FRONT_END)) == 2 and len(pids(server, CORE)) == 1
        num_requests = 0

        def ask() -> int:
            nonlocal num_requests
            with httpx.Client(timeout=WAIT_S) as client:
                response = client.post(f"{server.base_url}/v1/completions", json=SHORT)
                assert response.json()["choices"] == expected["choices"]
                num_requests += 1
                return front_end_of(server, response)

        until_each(server, ask)

        page = {path: file.etag for path, file in read_files().items()}

        def look() -> int:
            with httpx.Client(timeout=WAIT_S) as client:
                response = client.get(f"{server.base_url}/metrics")
                number = front_end_of(server, response)

                def counts() -> tuple[float, ...]:
                    """Of tokens and requests; a front end that is slow to answer is counted later."""
                    text = client.get(f"{server.base_url}/metrics").text
                    lines = [line for line in text.splitlines() if not line.startswith("#")]
                    figures = dict(line.rsplit(" ", 1) for line in lines)
                    labels = '{engine="0",model_name="demo"}'
                    names = ("generation_tokens_total", "e2e_request_latency_seconds_count")
                    (own,) = client.get(f"{server.base_url}/usage").json()["keys"]
                    told = (float(figures[f"vllm:{name}{labels}"]) for name in names)
                    return (*told, own["output_tokens"], own["requests"])

                expected_counts = (8 * num_requests, num_requests) * 2
                assert holds_within(WAIT_S, lambda: counts() == expected_counts), counts()
                plan: dict[str, Any] = client.get(f"{server.base_url}/v1/plan").json()
                assert plan["settings"]["parallel"]["num_front_ends"] == 2
                assert {path: client.get(server.base_url + path).headers["etag"] for path in page} == page

                def outputs() -> list[int]:
                    """Tokens of each request; likewise."""
                    told = client.get(f"{server.base_url}/requests", headers={"Authorization": "Bearer boss"})
                    return [one["num_output_tokens"] for one in told.json()["requests"]]

                assert holds_within(WAIT_S, lambda: outputs() == [8] * num_requests), outputs()
                return number

        until_each(server, look)
        assert server.stop() == 0
        assert "Traceback" not in server.output


def test_one_that_is_killed_takes_only_its_own_streams_along_and_is_replaced(
    demo_model: Path, environment: dict[str, str]
) -> None:
    with Server(arguments(demo_model), environment=environment) as server:
        before = pids(server, FRONT_END)
        with streams_at_each(server) as streams:
            assert holds_within(WAIT_S, lambda: gauge(server, "vllm:num_requests_running") == 2)
            victim, other = sorted(streams)
            victim_pid = int(
                re.search(rf"\[front end {victim}\] Started server process \[(\d+)\]", server.output)[1]  # type: ignore[index]
            )
            os.kill(victim_pid, signal.SIGKILL)
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in streams[victim]:
                    pass
            assert holds_within(WAIT_S, lambda: gauge(server, "vllm:num_requests_running") == 1)
            assert next(line for line in streams[other] if line).startswith("data: ")
            assert holds_within(WAIT_S, lambda: len(set(pids(server, FRONT_END)) - set(before)) == 1)
            assert holds_within(WAIT_S, lambda: server.get("/health").json()["num_pending"] == 1)
        assert holds_within(WAIT_S, lambda: gauge(server, "vllm:num_requests_running") == 0)
        text = f"Front end {victim} (process {victim_pid}) was killed by SIGKILL"
        assert holds_within(WAIT_S, lambda: text in server.output)

        def ask() -> int:
            with httpx.Client(timeout=WAIT_S) as client:
                response = client.post(f"{server.base_url}/v1/completions", json=SHORT)
                assert response.status_code == 200  # the new one takes none until it is ready
                return front_end_of(server, response)

        until_each(server, ask)
        assert server.stop() == 0


def test_an_abort_reaches_a_request_wherever_it_runs(demo_model: Path, environment: dict[str, str]) -> None:
    with Server(arguments(demo_model, "--admin-api-key", "boss"), environment=environment) as server:
        headers = {"Authorization": "Bearer boss"}
        url = f"{server.base_url}/v1/completions"
        with httpx.stream("POST", url, json=ENDLESS, timeout=WAIT_S) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            owner = front_end_of(server, stream)
            for index in range(MAX_TRIES):
                with httpx.Client(timeout=WAIT_S, headers=headers) as client:
                    body = {"request_id": stream.headers["x-request-id"]}
                    probe = client.get(f"{server.base_url}/health")
                    if front_end_of(server, probe) == owner and index < MAX_TRIES - 1:
                        continue
                    answers = abort_answers(client, server, body)
                    assert all(front_end_of(server, answer) != owner for answer in answers)
                    if len(answers) == 1:
                        assert answers[0].json()["num_aborted"] == 1
                    missing = abort_answers(client, server, {"request_id": "nobodys"})
                    assert missing[-1].status_code == 404
                    break
            assert '"finish_reason":"abort"' in "".join(lines)


def abort_answers(client: httpx.Client, server: ServerProcess, body: dict[str, str]) -> list[httpx.Response]:
    """Answers to the same abort over one connection, until all front ends were heard in time.

    One that was slow has ended the request all the same when it is asked again, and then knows none.
    """
    answers: list[httpx.Response] = []

    def was_heard() -> bool:
        answers.append(client.post(f"{server.base_url}/abort", json=body))
        return answers[-1].status_code != 503

    assert holds_within(WAIT_S, was_heard)
    return answers


def test_the_death_of_the_core_is_told_at_each_and_the_next_one_serves_both(
    demo_model: Path, environment: dict[str, str]
) -> None:
    flags = ("--restart-engine", "--max-engine-restarts", "1")
    hold = Path(environment["PYTHONPATH"]) / "hold-start"
    with Server(arguments(demo_model, *flags), environment=environment) as server:
        for _ in range(2):
            hold.touch()
            with streams_at_each(server) as streams:
                (core,) = pids(server, CORE)
                os.kill(core, signal.SIGKILL)
                for lines in streams.values():
                    last = [line for line in lines if line][-1]
                    assert '"engine_dead"' in last and "SIGKILL" in last
            health = server.get("/health")
            hold.unlink()
            assert health.status_code == 503
            if health.json()["status"] == "dead":
                break
            assert "SIGKILL" in health.json()["reason"]
            ready = lambda: server.get("/ready").status_code == 200  # noqa: E731
            assert holds_within(WAIT_S, ready)
            # Each front end hears of it by itself.
            for _ in range(8):
                assert holds_within(WAIT_S, lambda: gauge(server, "qanat:engine_restarts_total") == 1)
                is_served = lambda: server.post("/v1/completions", SHORT).status_code == 200  # noqa: E731
                assert holds_within(WAIT_S, is_served)
        assert health.json()["status"] == "dead"
        assert server.process is not None and server.process.wait(WAIT_S) == 1
        assert "Traceback" not in server.output


def test_the_signal_lets_streams_at_each_finish_and_the_second_cuts_them_off(
    demo_model: Path, environment: dict[str, str]
) -> None:
    flags = ("--shutdown-timeout", "3600")
    with Server(arguments(demo_model, *flags), environment=environment) as server:
        assert server.process is not None
        children = server.child_pids()
        with streams_at_each(server) as streams:
            server.process.send_signal(signal.SIGTERM)
            stopping = lambda: server.output.count("Stopping; 1 requests") == 2  # noqa: E731
            assert holds_within(WAIT_S, stopping)
            assert server.get("/ready").status_code == 503
            assert server.post("/v1/completions", SHORT).status_code == 503
            for lines in streams.values():
                assert next(line for line in lines if line).startswith("data: ")
            server.process.send_signal(signal.SIGTERM)
            for lines in streams.values():
                assert '"unavailable"' in [line for line in lines if line][-1]
        assert server.process.wait(WAIT_S) == 0
        assert not any(is_running(pid) for pid in children)
        assert "Traceback" not in server.output


def test_all_end_with_the_parent(demo_model: Path) -> None:
    with Server(arguments(demo_model)) as server:
        assert server.process is not None
        children = server.child_pids()
        assert len(children) == 3
        server.process.kill()
        server.process.wait()
        assert holds_within(WAIT_S, lambda: not any(is_running(pid) for pid in children))


def test_a_server_whose_engine_cannot_start_says_why_and_ends(demo_model: Path) -> None:
    server = ServerProcess(arguments(demo_model, "--kv-cache-memory-bytes", "64KiB"))
    with pytest.raises(AssertionError, match="ended with 1"), server:
        pass
    assert re.search(r"^qanat serve: error: .*--kv-cache-memory-bytes", server.output, re.MULTILINE)
    assert "Traceback" not in server.output


def test_the_death_of_a_replica_ends_its_own_streams_at_each_and_a_new_front_end_does_without_it(
    demo_model: Path, environment: dict[str, str]
) -> None:
    url_of = "{}/v1/completions".format
    with Server(arguments(demo_model, "-dp", "2"), environment=environment) as server:
        cores = pids(server, CORE)
        assert len(cores) == 2
        with streams_at_each(server, 0) as first, streams_at_each(server, 1) as second:
            assert sorted(first) == sorted(second) == [1, 2]
            os.kill(cores[0], signal.SIGKILL)
            states: dict[int, str] = {}

            def is_degraded() -> bool:
                health = server.get("/health")
                states.update((one["rank"], one["status"]) for one in health.json()["replicas"])
                return health.status_code == 200 and sorted(states.values()) == ["dead", "ok"]

            assert holds_within(WAIT_S, is_degraded)
            dead, alive = (first, second) if states[0] == "dead" else (second, first)
            for lines in dead.values():
                assert '"engine_dead"' in [line for line in lines if line][-1]
            for lines in alive.values():
                assert next(line for line in lines if line).startswith("data: ")
        gone = next(rank for rank, state in states.items() if state == "dead")
        replace_front_ends(server, 2)
        for _ in range(8):
            assert httpx.post(url_of(server.base_url), json=SHORT, timeout=WAIT_S).status_code == 200
            assert is_degraded()
            pinned = {"X-data-parallel-rank": str(gone)}
            refused = httpx.post(url_of(server.base_url), json=SHORT, headers=pinned, timeout=WAIT_S)
            assert refused.status_code == 503 and f"Replica {gone}: " in refused.json()["error"]["message"]
        assert server.stop() == 0


def replace_front_ends(server: ServerProcess, num_front_ends: int) -> None:
    """Kills so many, one after the other, each once the one before has been replaced."""
    for pid in pids(server, FRONT_END)[:num_front_ends]:
        num_started = server.output.count("Started server process")
        os.kill(pid, signal.SIGKILL)
        assert holds_within(WAIT_S, lambda: server.output.count("Started server process") > num_started)  # noqa: B023


def new_pid(server: ServerProcess, module: str, before: list[int]) -> int:
    """Of the process that has taken the place of one that was killed."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = set(pids(server, module)) - set(before)
        return bool(found)

    assert holds_within(WAIT_S, is_there)
    return found[0]


def test_a_new_front_end_serves_while_a_replica_is_being_started(
    demo_model: Path, environment: dict[str, str]
) -> None:
    flags = ("-dp", "2", "--restart-engine")
    with Server(arguments(demo_model, *flags), environment=environment) as server:
        cores = pids(server, CORE)
        os.kill(cores[0], signal.SIGKILL)
        successor = new_pid(server, CORE, cores)
        os.kill(successor, signal.SIGSTOP)
        try:
            replace_front_ends(server, 2)
            for _ in range(8):
                assert server.get("/health").json()["status"] == "degraded"
                response = httpx.post(f"{server.base_url}/v1/completions", json=SHORT, timeout=WAIT_S)
                assert response.status_code == 200
        finally:
            os.kill(successor, signal.SIGCONT)
        assert holds_within(WAIT_S, lambda: server.get("/health").json()["status"] == "ok")
        assert server.stop() == 0


def test_a_front_end_that_comes_when_the_engine_is_dead_starts_none(
    demo_model: Path, environment: dict[str, str]
) -> None:
    with Server(arguments(demo_model), environment=environment) as server:
        before = pids(server, FRONT_END)
        os.kill(before[0], signal.SIGKILL)
        late = new_pid(server, FRONT_END, before)
        os.kill(late, signal.SIGSTOP)
        for core in pids(server, CORE):
            os.kill(core, signal.SIGKILL)
        is_dead = lambda: server.get("/health").json()["status"] == "dead"  # noqa: E731
        assert holds_within(WAIT_S, is_dead)
        os.kill(late, signal.SIGCONT)
        assert server.process is not None and server.process.wait(WAIT_S) == 1
        assert (
            "kernels:" in server.output and server.output.count("kernels:") == 1
        )  # one core has ever served
        assert "they are killed" not in server.output and "Traceback" not in server.output
