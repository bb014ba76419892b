"""Prefix reuse on the native kernels: the same bits as without it, and the same answers over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat import LLM, SamplingParams
from qanat.core import prefix_report as why
from qanat.entrypoints.results import Generation
from tests.support.providers import built_kernels  # noqa: F401
from tests.support.server_process import ServerProcess

IDS = [(7 * place) % 90 + 10 for place in range(400)]
PROMPTS = [IDS, IDS[:300] + [5, 6] * 10, IDS[:300] + [6, 5] * 20, IDS[:64], IDS[:130], IDS]


def open_model(folder: Path, **options: Any) -> LLM:
    return LLM(str(folder), **({"max_model_len": 1024, "max_num_seqs": 8, "num_threads": 1} | options))


def bits(result: Generation) -> list[tuple[list[int], str]]:
    return [(list(one.token_ids), repr(one.logprobs)) for one in result.outputs]


@pytest.mark.parametrize(
    ("dtype", "cache"), [("float32", "auto"), ("bfloat16", "auto"), ("bfloat16", "int8")]
)
def test_a_hit_changes_no_bit(demo_model: Path, dtype: str, cache: str) -> None:
    params = SamplingParams(max_tokens=10, temperature=0.8, seed=3, logprobs=2, ignore_eos=True)
    settings = {"dtype": dtype, "kv_cache_dtype": cache}
    with open_model(demo_model, enable_prefix_caching=False, **settings) as model:
        cold = [bits(model.generate(prompt, params)[0]) for prompt in PROMPTS]
    with open_model(demo_model, **settings) as model:
        warm = [model.generate(prompt, params)[0] for prompt in PROMPTS]
        assert [bits(result) for result in warm] == cold, "one after the other"
        assert [result.num_cached_tokens for result in warm] == [0, 0, 256, 0, 64, 384]
        assert [bits(result) for result in model.generate(PROMPTS, params)] == cold, "together"
        history = IDS + list(warm[0].outputs[0].token_ids)
        turn = model.generate(history + [9] * 30, params)[0]
    with open_model(demo_model, enable_prefix_caching=False, **settings) as model:
        assert bits(model.generate(history + [9] * 30, params)[0]) == bits(turn)
    assert turn.num_cached_tokens == 384


def test_choices_share_their_prompt_and_preempted_requests_resume(demo_model: Path) -> None:
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=5, n=3, logprobs=1, ignore_eos=True)
    with open_model(demo_model, enable_prefix_caching=False) as model:
        cold = [bits(one) for one in model.generate([IDS, IDS[:200] + [1] * 150], params)]
    with open_model(demo_model, block_size=16, num_gpu_blocks_override=70, max_model_len=512) as model:
        tight = [bits(one) for one in model.generate([IDS, IDS[:200] + [1] * 150], params)]
        assert model._engine.stats().num_preemptions > 0
        assert model._engine.stats().prefixes.num_evicted_blocks > 0
    assert tight == cold


@pytest.mark.slow
def test_ranks_copy_their_share_of_a_state(demo_model: Path) -> None:
    params = SamplingParams(max_tokens=8, temperature=0.7, seed=1, logprobs=2, ignore_eos=True)
    found = []
    for is_on in (False, True):
        with open_model(demo_model, tensor_parallel_size=2, enable_prefix_caching=is_on) as model:
            results = [model.generate(prompt, params)[0] for prompt in (PROMPTS[0], *PROMPTS[:3])]
        found.append([bits(result) for result in results])
    assert found[0] == found[1]
    assert [result.num_cached_tokens for result in results] == [0, 384, 0, 256]


@pytest.fixture(scope="module")
def server(demo_model: Path) -> Iterator[ServerProcess]:
    arguments = [str(demo_model), "--served-model-name", "demo", "--max-num-seqs", "4"]
    with ServerProcess([*arguments, "--admin-api-key", "operator"]) as running:
        yield running


def chat(server: ServerProcess, messages: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
    body = {"model": "demo", "messages": messages, "max_tokens": 8, "logprobs": True, "seed": 1} | fields
    reply = httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def metric(server: ServerProcess, name: str) -> float:
    text = server.get("/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))


def test_eng_004_users_who_share_a_system_prompt_hit_over_http(server: ServerProcess) -> None:
    system = {"role": "system", "content": "Answer sums in words, and be brief about it. " * 20}
    queries, hits = (metric(server, f"vllm:prefix_cache_{name}_total") for name in ("queries", "hits"))
    answers = [
        chat(server, [system, {"role": "user", "content": f"What is {number} + 3?"}]) for number in range(3)
    ]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[0] == 0 and cached[1] == cached[2] >= 64
    assert cached[1] > answers[1]["usage"]["prompt_tokens"] - 128, (
        "all but the question and a part of a block"
    )
    report = answers[1]["timing"]["prefix"]
    assert report["num_cached_tokens"] == cached[1] and report["why"] in (why.NEW, why.NO_STATE, why.WHOLE)
    assert answers[0]["timing"]["prefix"]["why"] == why.NEW
    assert metric(server, "vllm:prefix_cache_hits_total") - hits == sum(cached)
    num_prompt_tokens = sum(answer["usage"]["prompt_tokens"] for answer in answers)
    assert metric(server, "vllm:prefix_cache_queries_total") - queries == num_prompt_tokens
    assert (
        metric(server, "qanat:prefix_cache_checkpoints") > 0
        and metric(server, "qanat:prefix_cache_bytes") > 0
    )


def test_a_salt_keeps_apart_and_changes_no_answer(server: ServerProcess) -> None:
    messages = [{"role": "user", "content": "Repeat the word water many times. " * 12}]
    plain, again, salted = (chat(server, messages, cache_salt=salt) for salt in ("", "", "mine"))
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (plain, again, salted)]
    assert cached[0] == cached[2] == 0 < cached[1]
    assert plain["choices"] == again["choices"] == salted["choices"]


def test_a_history_without_its_thinking_hits_up_to_the_last_stable_turn(server: ServerProcess) -> None:
    question = {"role": "user", "content": "Tell me about the sea and the stars above it. " * 10}
    first = chat(server, [question], max_tokens=100)
    answer = {"role": "assistant", "content": "It is wide."}
    second = chat(server, [question, answer, {"role": "user", "content": "And the moon?"}])
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 <= first["usage"]["prompt_tokens"] - cached < 64 + 16


def test_an_admin_has_everything_forgotten_while_nothing_runs(server: ServerProcess) -> None:
    messages = [{"role": "user", "content": "Which of these shall be forgotten? " * 12}]
    path, operator = "/reset_prefix_cache", {"Authorization": "Bearer operator"}
    first, again = chat(server, messages), chat(server, messages)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert server.post(path).status_code in (401, 403)
    assert metric(server, "qanat:prefix_cache_blocks") > 0
    endless = {"model": "demo", "prompt": "x", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.base_url}/v1/completions", json=endless, timeout=60) as stream:
        lines = stream.iter_lines()  # one that nobody holds would close the connection
        next(lines)
        refused = server.post(path, headers=operator)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "prefix_cache_in_use")
    deadline_s = time.monotonic() + 60
    while metric(server, "vllm:num_requests_running") and time.monotonic() < deadline_s:
        time.sleep(0.01)
    reset = server.post(path, headers=operator)
    assert (reset.status_code, reset.json()) == (200, {"status": "reset"})
    anew = chat(server, messages)
    assert anew["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert anew["choices"] == first["choices"]
