"""What becomes of sampled tokens: stops, bounds, errors, logprobs, timing."""

from __future__ import annotations

import pytest

from qanat.core.batch import RowOutput, StepOutput
from qanat.core.errors import IntegrityError
from qanat.core.request import FinishReason
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request


def outputs_of(prompt: list[int], num_tokens: int) -> list[int]:
    return undisturbed_output(make_request("x", prompt, num_tokens), 97)


def test_max_tokens_ends_with_length() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10, 5))
    loop.run()
    assert len(loop.tokens["a"]) == 5
    end = loop.ends["a"]
    assert (end.finish_reason, end.stop_token_id, end.new_token_ids) == (
        FinishReason.LENGTH,
        None,
        loop.tokens["a"][-1:],
    )


@pytest.mark.parametrize("position", [0, 1, 4])
def test_a_stop_token_ends_with_stop_and_is_named(position: int) -> None:
    plain = outputs_of([1, 2, 3], 9)
    first = plain.index(plain[position])
    loop = StepLoop()
    loop.add(make_request("a", [1, 2, 3], 9, stop_token_ids=[plain[position]]))
    loop.run()
    assert loop.tokens["a"] == plain[: first + 1]
    assert (loop.ends["a"].finish_reason, loop.ends["a"].stop_token_id) == (
        FinishReason.STOP,
        plain[position],
    )


def test_a_stop_token_as_the_last_allowed_token_is_a_stop() -> None:
    plain = outputs_of([1, 2, 3], 4)
    loop = StepLoop()
    loop.add(make_request("a", [1, 2, 3], 4, stop_token_ids=[plain[3]]))
    loop.run()
    assert loop.ends["a"].finish_reason is FinishReason.STOP


def answer(loop: StepLoop, *token_ids: int, **fields: object) -> None:
    """Schedules a step with one row and answers it by hand."""
    batch = loop.scheduler.schedule()
    assert batch is not None
    row_output = RowOutput(batch.rows[0].row, list(token_ids), **fields)  # type: ignore[arg-type]
    loop.take(loop.scheduler.update(batch, StepOutput(batch.step_id, [row_output])))


def test_a_stop_token_before_min_tokens_does_not_stop() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 4, 9, stop_token_ids=[7], min_tokens=3))
    answer(loop, 7)
    answer(loop, 7)
    assert loop.ends == {}
    answer(loop, 7)
    assert loop.ends["a"].finish_reason is FinishReason.STOP
    assert loop.tokens["a"] == [7, 7, 7]


def test_several_tokens_are_cut_after_the_one_that_ends_the_request() -> None:
    loop = StepLoop()
    loop.add(make_request("stop", 4, 9, stop_token_ids=[7]))
    answer(loop, 1)
    answer(loop, 2, 7, 3)
    assert loop.tokens["stop"] == [1, 2, 7]
    loop.add(make_request("length", 4, 3))
    answer(loop, 1)
    answer(loop, 2, 3, 4)
    assert loop.tokens["length"] == [1, 2, 3]
    loop.check_idle()


def test_accepted_tokens_count_as_computed_but_for_the_newest() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 4, 9))
    answer(loop, 1)
    answer(loop, 2, 3, 4)
    request = loop.requests["a"]
    assert (request.num_tokens, request.num_computed_tokens) == (8, 7)


def test_max_tokens_zero_ends_with_length_after_the_prompt_and_without_a_token() -> None:
    loop = StepLoop(max_num_batched_tokens=64)
    loop.add(make_request("a", 100, 0, prompt_logprobs=0))
    loop.run()
    loop.check_idle()
    assert loop.tokens["a"] == []
    assert loop.ends["a"].finish_reason is FinishReason.LENGTH
    assert len(loop.prompt_logprobs["a"]) == 99
    assert len(loop.executor.batches) == 2


def test_a_token_that_a_worker_samples_for_max_tokens_zero_is_ignored() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10, 0))
    answer(loop, 5)
    assert (loop.tokens["a"], loop.ends["a"].finish_reason) == ([], FinishReason.LENGTH)


def test_logits_that_are_not_finite_end_that_request_only() -> None:
    loop = StepLoop()
    loop.executor.errors = {"bad": 12}
    loop.add(make_request("bad", 10, 8))
    loop.add(make_request("good", 10, 8))
    loop.run()
    loop.check_idle()
    end = loop.ends["bad"]
    assert (end.finish_reason, end.error_code) == (FinishReason.ERROR, "numeric_error")
    assert end.error_message == "The logits are not finite."
    assert len(loop.tokens["bad"]) == 2
    assert len(loop.tokens["good"]) == 8


def test_a_row_error_counts_even_beside_a_token() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10))
    answer(loop, 1)
    answer(loop, 2, error="The logits are not finite.")
    assert (loop.tokens["a"], loop.ends["a"].error_code) == ([1], "numeric_error")


def test_logprobs_pass_through_and_are_cut_with_the_tokens() -> None:
    loop = StepLoop(max_draft_tokens=3)
    loop.add(make_request("a", 10, 7, logprobs=0))
    collected = []
    while loop.scheduler.has_work:
        batch = loop.scheduler.schedule()
        assert batch is not None
        outputs = loop.scheduler.update(batch, loop.executor.execute(batch).result())
        collected += [entry.token_ids[0] for output in outputs for entry in output.logprobs]
        loop.take(outputs)
    assert collected == loop.tokens["a"]


def test_prompt_logprobs_come_chunk_by_chunk_and_once_even_after_preemption() -> None:
    loop = StepLoop(max_num_batched_tokens=64)
    loop.add(make_request("a", 200, 4, prompt_logprobs=0))
    loop.step()
    loop.step()
    loop.scheduler.preempt("a")
    loop.step()
    loop.scheduler.preempt("a")
    loop.run()
    scored = [entry.token_ids[0] for entry in loop.prompt_logprobs["a"]]
    assert scored == loop.requests["a"].prompt_token_ids[1:]


def test_a_chunk_without_news_makes_no_output() -> None:
    loop = StepLoop(max_num_batched_tokens=64)
    loop.add(make_request("a", 100, 4))
    batch = loop.scheduler.schedule()
    assert batch is not None
    assert loop.scheduler.update(batch, loop.executor.execute(batch).result()) == []


def test_timing_is_set_with_the_end_and_splits_the_time_between_arrival_and_last_token() -> None:
    loop = StepLoop(max_num_batched_tokens=64)
    loop.clock.now_s = 12.0
    loop.add(make_request("a", 100, 4, arrival_time_s=10.0))
    while loop.scheduler.has_work:
        loop.step(duration_s=0.5)
    timing = loop.ends["a"].timing
    assert timing is not None
    # Two steps for the prompt, the second of which yields the first token; three more tokens follow.
    assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (2.0, 1.0, 1.5)


def test_timing_of_a_request_that_never_ran_is_queue_time_only() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10, arrival_time_s=0.0))
    loop.clock.now_s = 3.0
    loop.abort("a")
    timing = loop.ends["a"].timing
    assert timing is not None
    assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (3.0, 0.0, 0.0)


def test_decode_time_ends_with_the_last_token_and_not_with_the_abort() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10, 40))
    for _ in range(4):
        loop.step(duration_s=1.0)
    loop.clock.advance(100.0)
    loop.abort("a")
    timing = loop.ends["a"].timing
    assert timing is not None
    assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (0.0, 1.0, 3.0)


def test_timing_survives_preemption() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10, 4))
    loop.step(duration_s=1.0)
    loop.step(duration_s=1.0)
    loop.scheduler.preempt("a")
    while loop.scheduler.has_work:
        loop.step(duration_s=1.0)
    timing = loop.ends["a"].timing
    assert timing is not None
    assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (0.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("make_rows", "message"),
    [
        (lambda row: [RowOutput(row + 1, [1])], "answered for row 1 where row 0"),
        (lambda row: [RowOutput(row, [])], "returned no token"),
        (lambda row: [], "1 rows was answered by step 0 with 0 rows"),
        (lambda row: [RowOutput(row, [1]), RowOutput(row, [1])], "with 2 rows"),
    ],
)
@pytest.mark.parametrize("num_steps_before", [0, 2])
def test_results_that_do_not_answer_the_batch_are_refused(
    make_rows: object, message: str, num_steps_before: int
) -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10))
    for _ in range(num_steps_before):
        loop.step()
    batch = loop.scheduler.schedule()
    assert batch is not None
    rows = make_rows(batch.rows[0].row)  # type: ignore[operator]
    with pytest.raises(IntegrityError, match=message.replace("step 0", f"step {batch.step_id}")):
        loop.scheduler.update(batch, StepOutput(batch.step_id, rows))


def test_a_token_in_the_middle_of_a_prompt_is_refused() -> None:
    loop = StepLoop(max_num_batched_tokens=64)
    loop.add(make_request("a", 100))
    with pytest.raises(IntegrityError, match="before its known tokens were computed"):
        answer(loop, 1)
