"""Faults that users met in other servers, on a real server with the demo model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server_process import ServerProcess

SEEDED = {
    "prompt": "The capital of",
    "seed": 42,
    "temperature": 20,  # the demo model is sure of itself; a draw must be a draw
    "max_tokens": 16,
    "ignore_eos": True,
    "return_token_ids": True,
}
IDLE_S = 4.0
MAX_IDLE_SHARE = 0.05
NUM_LOOKS = 4


@pytest.fixture
def http(demo_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=demo_server.base_url, timeout=120) as client:
        yield client


def complete(http: httpx.Client, **fields: Any) -> list[int]:
    """Output token ids of one completion."""
    response = http.post("/v1/completions", json={"return_token_ids": True, **fields})
    assert response.status_code == 200, response.text
    token_ids: list[int] = response.json()["choices"][0]["token_ids"]
    return token_ids


def stream_lines(http: httpx.Client, body: dict[str, Any], on_line: Any = None) -> list[str]:
    """Lines of a stream that are not empty; `on_line` is called with the number of each as it comes."""
    lines: list[str] = []
    with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line:
                lines.append(line)
                if on_line is not None:
                    on_line(len(lines))
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("neighbour", [None, "unseeded", "greedy"])
def test_api_022_a_seed_holds_whatever_runs_beside(http: httpx.Client, neighbour: str | None) -> None:
    alone = complete(http, **SEEDED)
    if neighbour is None:
        assert [complete(http, **SEEDED) for _ in range(3)] == [alone] * 3
        hot = {**SEEDED, "seed": None}
        assert complete(http, **hot) != complete(http, **hot)
        return
    beside = {
        "prompt": "Another text",
        "max_tokens": 400,
        "ignore_eos": True,
        "temperature": 0 if neighbour == "greedy" else 1.0,
    }
    results: list[list[int]] = []

    def ask(number: int) -> None:
        if number in (1, 5, 9, 13):
            results.append(complete(http, **SEEDED))

    stream_lines(http, beside, ask)
    assert results == [alone] * 4


@pytest.mark.slow
def test_api_022_a_neighbour_that_joins_changes_nothing(http: httpx.Client) -> None:
    lasting = {**SEEDED, "max_tokens": 400}
    alone = stream_text(stream_lines(http, lasting))
    with ThreadPoolExecutor(1) as pool:
        for _ in range(4):
            joined = []

            def join(number: int, joined: list[Any] = joined) -> None:
                if number == 1:
                    joined.append(pool.submit(complete, http, prompt="x", max_tokens=60, temperature=1.0))

            assert stream_text(stream_lines(http, lasting, join)) == alone
            assert joined[0].result()


def stream_text(lines: list[str]) -> tuple[str, list[int]]:
    """What a stream says, however its tokens are shared out among the chunks."""
    assert lines[-1] == "data: [DONE]"
    choices = [choice for line in lines[:-1] for choice in json.loads(line.removeprefix("data: "))["choices"]]
    return "".join(c["text"] for c in choices), [i for c in choices for i in c.get("token_ids") or []]


@pytest.mark.slow
def test_api_026_small_temperatures_are_greedy_and_spare_neighbours(http: httpx.Client) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 20, "seed": 1}
    greedy = complete(http, **body, temperature=0)
    warm = complete(http, **body, temperature=20)
    for temperature in (1e-1, 1e-3, 1e-5, 1e-12, 1e-40):
        with ThreadPoolExecutor(2) as pool:
            small = pool.submit(complete, http, **body, temperature=temperature)
            neighbour = pool.submit(complete, http, **body, temperature=20)
            assert neighbour.result() == warm
            if temperature <= 1e-5:
                assert small.result() == greedy, temperature
            assert small.result()
    assert complete(http, **body, temperature=20, top_p=1e-4) == greedy


@pytest.mark.slow
def test_api_028_openai_penalties_see_the_output_and_repetition_sees_the_prompt_too(
    http: httpx.Client,
) -> None:
    def first(prompt: list[int], **fields: Any) -> int:
        (token_id,) = complete(
            http, prompt=prompt, max_tokens=1, temperature=0, ignore_eos=True, min_tokens=1, **fields
        )
        return token_id

    ids = http.post("/tokenize", json={"prompt": "Paris Paris Paris 1 + 1 = 2"}).json()["tokens"]
    prompt = [*ids, first(ids)]
    for _ in range(
        30
    ):  # until the model repeats a token of the prompt, as it soon does when it only reads itself
        favourite = first(prompt)
        if favourite in prompt:
            break
        prompt.append(favourite)
    assert favourite in prompt
    assert first(prompt, presence_penalty=2) == favourite
    assert first(prompt, frequency_penalty=2) == favourite
    assert first(prompt, repetition_penalty=100) not in prompt
    for wrong in ({"presence_penalty": 2.5}, {"frequency_penalty": -2.5}, {"repetition_penalty": 0}):
        response = http.post("/v1/completions", json={"prompt": prompt, **wrong})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == next(iter(wrong))


@pytest.mark.slow
def test_perf_005_an_idle_server_uses_next_to_nothing(demo_server: ServerProcess) -> None:
    def cpu_s() -> float:
        """By the scheduler's clock: short turns that begin with a tick would count as whole ticks elsewhere."""
        assert demo_server.process is not None
        pids = [demo_server.process.pid, *demo_server.child_pids()]
        threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def idle_share() -> float:
        start_s, start_cpu_s = time.monotonic(), cpu_s()
        time.sleep(IDLE_S)
        return (cpu_s() - start_cpu_s) / (time.monotonic() - start_s)

    httpx.post(f"{demo_server.base_url}/v1/completions", json={"prompt": "x"}, timeout=60)
    # What tests before this one have left to end, or neighbours on the machine, may spoil a look, not all of them.
    shares = (idle_share() for _ in range(NUM_LOOKS))
    assert any(share < MAX_IDLE_SHARE for share in shares)
