"""Faults that users met in other engines, on the whole in-process engine with a tiny random model in fp32."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qanat.core.sampling_params import SamplingParams
from qanat.engine.sync_engine import SyncEngine
from tests.worker.tiny_model import VOCAB_SIZE, tiny_config

FAMILIES = ["qwen3", "qwen3_5", "qwen3_5_moe"]


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(6, VOCAB_SIZE), k=length)


def generate(engine: SyncEngine, prompts: dict[str, list[int]], **sampling: Any) -> dict[str, list[int]]:
    """Output token ids by request id; checks that each request ends exactly once."""
    settings = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 20, **sampling}
    for request_id, token_ids in prompts.items():
        engine.add(request_id, token_ids, SamplingParams(**settings))
    outputs: dict[str, list[int]] = {request_id: [] for request_id in prompts}
    ended = []
    for request_id, event in engine.run():
        assert event.error_message == ""
        outputs[request_id] += event.token_ids
        ended += [request_id] if event.finish_reason else []
    assert sorted(ended) == sorted(prompts)
    return outputs


def assert_all_free(engine: SyncEngine) -> None:
    stats = engine.stats()
    assert stats.num_free_blocks == stats.num_usable_blocks
    assert stats.num_free_states == stats.num_usable_states
    assert (stats.num_running, stats.num_waiting) == (0, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_eng_005_preempted_requests_equal_an_undisturbed_run(family: str) -> None:
    prompts = {str(i): prompt(60, i) for i in range(6)}
    large = SyncEngine(tiny_config(family))
    small = SyncEngine(tiny_config(family, {"num_blocks_override": 22}))
    assert generate(small, prompts, max_tokens=40) == generate(large, prompts, max_tokens=40)
    assert small.stats().num_preemptions > 0
    assert_all_free(small)


@pytest.mark.parametrize("family", FAMILIES)
def test_eng_006_eng_026_the_same_prompt_again_gives_the_same(family: str) -> None:
    engine = SyncEngine(tiny_config(family))
    for length in (32, 40, 64):
        first, second, third = (
            generate(engine, {str(length): prompt(length, length)})[str(length)] for _ in range(3)
        )
        assert first == second == third


@pytest.mark.parametrize("family", FAMILIES)
def test_eng_011_requests_that_join_and_leave_equal_solo_runs(family: str) -> None:
    prompts = {str(i): prompt(3 + 11 * i, i) for i in range(7)}
    solo = SyncEngine(tiny_config(family, max_num_seqs=1))
    expected = generate(solo, prompts)
    for num_rows in (3, 5, 7):
        engine = SyncEngine(tiny_config(family, max_num_seqs=num_rows))
        assert generate(engine, prompts) == expected


def test_eng_017_repetition_penalty_sees_the_newest_token() -> None:
    engine = SyncEngine(tiny_config())
    plain = generate(engine, {"a": [7, 7, 7, 7]}, max_tokens=64)["a"]
    penalised = generate(engine, {"a": [7, 7, 7, 7]}, max_tokens=64, repetition_penalty=1.8)["a"]
    assert len(set(penalised)) > len(set(plain))


def test_eng_029_sequential_repeats_are_identical_at_any_temperature() -> None:
    engine = SyncEngine(tiny_config("qwen3_5_moe"))
    for sampling in ({"temperature": 0.0}, {"temperature": 1.2, "seed": 4}):
        runs = [generate(engine, {"a": prompt(30, 1)}, max_tokens=64, **sampling)["a"] for _ in range(3)]
        assert runs[0] == runs[1] == runs[2]


def test_eng_033_nothing_is_kept_after_stops_aborts_and_refusals() -> None:
    engine = SyncEngine(tiny_config())
    rng = random.Random(5)
    for round_number in range(6):
        for i in range(10):
            sampling = SamplingParams(
                max_tokens=rng.randrange(1, 40), temperature=1.0, stop_token_ids=rng.sample(range(6, 90), 3)
            )
            engine.add(f"{round_number}-{i}", prompt(rng.randrange(1, 100), i), sampling)
        for num_events, _ in enumerate(engine.run()):
            if num_events == 30:
                break
        engine.abort_all()
        assert_all_free(engine)


def test_eng_001_output_is_the_same_with_the_cache_used_by_others_before() -> None:
    """Request A, then A's text continued, then A again: recycled blocks and states leave no trace."""
    engine = SyncEngine(tiny_config("qwen3_5_moe", max_num_seqs=2))
    first = prompt(80, 9)
    output = generate(engine, {"a": first}, max_tokens=40)["a"]
    generate(engine, {"b": first + output + prompt(10, 10)})
    assert generate(engine, {"a": first}, max_tokens=40)["a"] == output


def test_offline_work_is_not_bounded_by_the_queue() -> None:
    engine = SyncEngine(tiny_config(max_num_seqs=2, max_waiting_requests=3))
    outputs = generate(engine, {str(i): prompt(5, i) for i in range(20)}, max_tokens=2)
    assert all(len(token_ids) == 2 for token_ids in outputs.values())
