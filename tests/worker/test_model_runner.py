from __future__ import annotations

import gc
import random

import pytest
import torch

from qanat.core.batch import NewRow, RowOutput, ScheduledBatch, ScheduledRow
from qanat.core.errors import IntegrityError
from qanat.worker.model_runner import NOT_FINITE, NOTHING_LEFT
from tests.worker.driver import Driver, full_logits, plain_choices, plain_output, random_prompt
from tests.worker.tiny_model import tiny_model

FAMILIES = ["qwen3", "qwen3_5", "qwen3_5_moe"]
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_requests_gives_what_each_gives_alone(family: str) -> None:
    driver = Driver(family)
    prompts = {f"r{length}": random_prompt(length, length) for length in (1, 2, 15, 16, 17, 40)}
    for name, prompt in prompts.items():
        driver.add(name, prompt)
    for name, prompt in prompts.items():
        assert driver.generate(name, 8) == plain_output(driver.model, prompt, 8), name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_any_schedule_gives_the_same_tokens(family: str, seed: int) -> None:
    """Prompts cut at odd places, rows that join, pause, leave and are taken over, greedy and sampled."""
    chance = random.Random(seed)
    driver = Driver(family)
    waiting = [(f"r{i}", random_prompt(chance.randint(1, 45), 100 + i), i % 2 == 1) for i in range(12)]
    ended = 0
    while waiting or driver.running:
        while waiting and driver.free_rows and chance.random() < 0.5:
            name, prompt, is_sampled = waiting.pop()
            driver.add(name, prompt, seed=7, **(SAMPLED if is_sampled else {}))
        picked = [name for name in driver.running if chance.random() < 0.7]
        chance.shuffle(picked)
        work = {name: chance.randint(1, driver.running[name].num_missing) for name in picked}
        if work:
            driver.step(work)
        for name in list(driver.running):
            request = driver.running[name]
            if len(request.output) >= 10 or (request.output and chance.random() < 0.05):
                extra = SAMPLED if request.new_row.sampling.temperature else {}
                prompt = request.tokens[: request.new_row.num_prompt_tokens]
                output = driver.release(name).output
                assert output == plain_choices(driver.model, prompt, output, seed=7, **extra), name
                ended += 1
    assert ended == 12


@pytest.mark.parametrize("cuts", [[1] * 37, [36, 1], [5, 16, 16], [16, 16, 5], [3, 31, 3]])
def test_every_cut_of_a_prompt_gives_the_same_first_token(cuts: list[int]) -> None:
    driver = Driver()
    prompt = random_prompt(37, 5)
    driver.add("r", prompt)
    for cut in cuts[:-1]:
        assert driver.step({"r": cut})["r"].token_ids == []
    assert driver.step({"r": cuts[-1]})["r"].token_ids == plain_output(driver.model, prompt, 1)


@pytest.mark.parametrize("sampling", [{}, SAMPLED])
def test_preempted_requests_continue_as_if_never_interrupted(sampling: dict[str, float]) -> None:
    """ENG-005: preempted at 1, 8 and 31 tokens, twice each; states and blocks go to others in between."""
    driver = Driver()
    prompt = random_prompt(21, 9)
    output: list[int] = []
    driver.add("r", prompt, seed=3, **sampling)
    for stop in (1, 1, 8, 8, 31, 31, 40):
        output = driver.generate("r", max(stop, len(output)))
        driver.release("r")
        driver.add("other", random_prompt(50, stop))
        driver.step_all()
        driver.release("other")
        driver.add("r", prompt, output, seed=3, **sampling)
        assert output == plain_choices(driver.model, prompt, output, seed=3, **sampling)
    assert len(output) == 40


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 48, 49])
def test_a_row_may_enter_with_all_but_one_token_computed(length: int) -> None:
    """ENG-026: a prompt whose length is a multiple of the block size, computed before up to its last token."""
    driver = Driver()
    prompt = random_prompt(length, length)
    driver.add("first", prompt)
    if length > 1:
        driver.step({"first": length - 1})
    first = driver.release("first")
    blocks = list(first.blocks)
    for _ in range(-(-length // 16) - len(blocks)):
        blocks.append(70)
    new_row = NewRow(
        row=5,
        request_id="second",
        token_ids=prompt,
        num_prompt_tokens=length,
        num_computed_tokens=length - 1,
        sampling=first.new_row.sampling,
        seed=0,
        choice_index=0,
        stop_token_ids=[],
        block_ids=blocks,
        state_id=first.new_row.state_id,
    )
    output = driver.runner.run(ScheduledBatch(9, driver.freed, [new_row], [ScheduledRow(5, 1, [])]))
    assert output.rows[0].token_ids == plain_output(driver.model, prompt, 1)


def test_sequential_repeats_have_the_same_bits() -> None:
    """ENG-029: the same request again and again, logprobs included."""
    driver = Driver()
    prompt = random_prompt(30, 1)
    seen: list[list[RowOutput]] = []
    for _ in range(5):
        driver.add("r", prompt, logprobs=3)
        driver.generate("r", 12)
        seen.append(driver.release("r").outputs)
    assert all(outputs == seen[0] for outputs in seen)


def test_logprobs_are_those_of_the_unmodified_distribution() -> None:
    driver = Driver()
    prompt = random_prompt(12, 2)
    driver.add("plain", prompt, logprobs=4)
    driver.add("bent", prompt, logprobs=0, logit_bias={7: 50.0}, temperature=0.3, top_k=2)
    driver.step_all()
    driver.step_all()
    for name, num_top in (("plain", 4), ("bent", 0)):
        request = driver.running[name]
        logprobs = torch.log_softmax(full_logits(driver.model, request.tokens[:-1]), dim=-1)[
            len(prompt) - 1 :
        ]
        for step, row in zip(request.outputs, logprobs, strict=True):
            entry = step.logprobs[0]
            assert entry.token_ids[0] == step.token_ids[0]
            assert entry.token_ids[1:] == row.topk(num_top).indices.tolist()
            torch.testing.assert_close(torch.tensor(entry.logprobs), row[entry.token_ids], atol=1e-4, rtol=0)
            assert entry.rank == int((row > row[step.token_ids[0]]).sum()) + 1
    assert driver.running["bent"].output == [7, 7]


@pytest.mark.parametrize("chunk_rows", [64, 3])
@pytest.mark.parametrize("cuts", [[20], [1, 19], [7, 7, 6], [19, 1]])
def test_prompt_logprobs_cover_every_position_once(cuts: list[int], chunk_rows: int) -> None:
    driver = Driver(logits_chunk_rows=chunk_rows)
    prompt = random_prompt(20, 3)
    driver.add("r", prompt, prompt_logprobs=2)
    driver.add("neighbour", random_prompt(9, 4))
    answers = [driver.step({"r": cuts[0], "neighbour": 9})["r"]]
    answers += [driver.step({"r": cut})["r"] for cut in cuts[1:]]
    entries = [entry for answer in answers for entry in answer.prompt_logprobs]
    assert [entry.token_ids[0] for entry in entries] == prompt[1:]
    logprobs = torch.log_softmax(full_logits(driver.model, prompt), dim=-1)
    for row, entry in zip(logprobs, entries, strict=False):
        torch.testing.assert_close(torch.tensor(entry.logprobs), row[entry.token_ids], atol=1e-4, rtol=0)
        assert entry.token_ids[1:] == row.topk(2).indices.tolist()
    assert answers[-1].token_ids == plain_output(driver.model, prompt, 1)
    assert driver.step({"r": 1})["r"].prompt_logprobs == []


def test_max_tokens_zero_evaluates_the_prompt_and_chooses_nothing() -> None:
    driver = Driver()
    prompt = random_prompt(6, 3)
    driver.add("r", prompt, prompt_logprobs=0, max_tokens=0)
    driver.add("single", [4], prompt_logprobs=0, max_tokens=0)
    answers = driver.step_all()
    assert answers["r"].token_ids == []
    assert [entry.token_ids for entry in answers["r"].prompt_logprobs] == [[token] for token in prompt[1:]]
    assert (answers["single"].token_ids, answers["single"].prompt_logprobs) == ([], [])


@pytest.mark.parametrize("sampling", [{}, SAMPLED, {"logprobs": 2}])
@pytest.mark.parametrize("chunk_rows", [64, 1])
def test_eng_036_scores_that_are_not_finite_end_one_request_only(
    sampling: dict[str, float], chunk_rows: int
) -> None:
    """One request's state is spoilt from its third step on."""
    driver = Driver(logits_chunk_rows=chunk_rows)
    prompts = {name: random_prompt(length, length) for name, length in (("a", 9), ("b", 20), ("c", 14))}
    for name, prompt in prompts.items():
        driver.add(name, prompt, **sampling)
    driver.step_all()
    driver.step_all()
    driver.cache.recurrent_states[1][driver.running["b"].new_row.state_id, 0, 0, 0] = torch.nan
    answers = driver.step_all()
    assert answers["b"] == RowOutput(row=driver.running["b"].new_row.row, token_ids=[], error=NOT_FINITE)
    driver.release("b")
    for name in ("a", "c"):
        assert driver.generate(name, 8) == plain_output(driver.model, prompts[name], 8, **sampling)
    # The same prompt, cold, in the same row, state and blocks.
    driver.add("again", prompts["b"], **sampling)
    assert driver.generate("again", 5) == plain_output(driver.model, prompts["b"], 5, **sampling)


def test_prompt_scores_that_are_not_finite_are_an_error_too() -> None:
    driver = Driver()
    driver.add("r", random_prompt(20, 1), prompt_logprobs=1, max_tokens=0)
    driver.step({"r": 5})
    driver.cache.recurrent_states[0][driver.running["r"].new_row.state_id] = torch.inf
    assert driver.step({"r": 15})["r"] == RowOutput(row=0, token_ids=[], error=NOT_FINITE)


def test_the_check_can_be_switched_off() -> None:
    driver = Driver(is_nan_check_enabled=False)
    driver.add("r", random_prompt(9, 1))
    driver.step_all()
    driver.cache.recurrent_states[0][driver.running["r"].new_row.state_id] = torch.nan
    answer = driver.step_all()["r"]
    assert answer.error == ""
    assert len(answer.token_ids) == 1


def test_a_request_that_excludes_every_token_is_told_so() -> None:
    driver = Driver()
    driver.add("r", [1, 2], allowed_token_ids=[5], stop_token_ids=[5], min_tokens=1)
    driver.add("neighbour", random_prompt(7, 7))
    answers = driver.step_all()
    assert (answers["r"].error, answers["r"].error_code) == (NOTHING_LEFT, "invalid_request_error")
    assert answers["neighbour"].token_ids == plain_output(driver.model, random_prompt(7, 7), 1)


def test_padding_of_the_vocabulary_is_never_chosen() -> None:
    driver = Driver(num_valid_token_ids=4)
    for i in range(6):
        driver.add(f"r{i}", random_prompt(5, i), temperature=float(i % 2) * 5, seed=i)
    for _ in range(5):
        driver.step_all()
    assert {token for request in driver.running.values() for token in request.output} <= {0, 1, 2, 3}


def test_contradictions_are_refused() -> None:
    def batch(*rows: ScheduledRow) -> ScheduledBatch:
        return ScheduledBatch(0, [], [], list(rows))

    driver = Driver()
    driver.add("r", random_prompt(20, 1))
    with pytest.raises(IntegrityError, match="row 3 was scheduled but holds no request"):
        driver.runner.run(batch(ScheduledRow(3, 1, [])))
    driver.step({"r": 10})
    with pytest.raises(IntegrityError, match="computes up to token 17 but owns 1 blocks of 16"):
        driver.runner.run(batch(ScheduledRow(0, 7, [])))
    with pytest.raises(IntegrityError, match="but 20 are known"):
        driver.runner.run(batch(ScheduledRow(0, 11, [2])))
    with pytest.raises(IntegrityError, match="no token to compute"):
        driver.runner.run(batch(ScheduledRow(0, 0, [])))
    with pytest.raises(IntegrityError, match="is not free"):
        driver.runner.run(ScheduledBatch(0, [], [driver.running["r"].new_row], [ScheduledRow(0, 1, [])]))
    with pytest.raises(IntegrityError, match="more blocks than its longest length needs"):
        driver.runner.run(batch(ScheduledRow(0, 1, list(range(3, 34)))))


def test_steps_leave_nothing_behind() -> None:
    driver = Driver()
    for i in range(4):
        driver.add(f"r{i}", random_prompt(5 + i, i), logprobs=2, presence_penalty=0.5)

    def num_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())

    driver.step_all()
    before = num_tensors()
    for _ in range(30):
        driver.step_all()
    assert num_tensors() == before


def test_the_tiny_model_has_opinions() -> None:
    """Guards the tests above: outputs differ between prompts and do not just repeat one token."""
    outputs = [plain_output(tiny_model("qwen3_5"), random_prompt(20, i), 8) for i in range(4)]
    assert len({tuple(output) for output in outputs}) == 4
    assert len(set(outputs[0])) > 2
