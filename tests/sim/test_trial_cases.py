"""Trial cases of other engines at the scheduler's level: ENG-026 and ENG-033 (ENG-005 is with the preemption tests)."""

from __future__ import annotations

import random

import pytest

from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request


@pytest.mark.parametrize("num_prompt_tokens", range(15, 50))
@pytest.mark.parametrize("is_preempted", [False, True])
def test_eng_026_prompts_around_block_boundaries_leave_at_least_one_token_to_compute(
    num_prompt_tokens: int, is_preempted: bool
) -> None:
    """The same prompt three times in a row and three times at once; preempted before the first token or not."""
    loop = StepLoop(block_size=16)
    prompt = list(range(num_prompt_tokens))
    for name in ("first", "second", "third"):
        loop.add(make_request(name, prompt, 20))
        loop.run()
    for name in ("x", "y", "z"):
        loop.add(make_request(name, prompt, 20))
    if is_preempted:
        batch = loop.scheduler.schedule()
        assert batch is not None
        output = loop.executor.execute(batch).result()
        for name in ("x", "y", "z"):
            assert loop.scheduler.preempt(name)
        loop.take(loop.scheduler.update(batch, output))
    loop.run()
    loop.check_idle()
    expected = undisturbed_output(loop.requests["first"], loop.executor.vocab_size)
    assert all(tokens == expected for tokens in loop.tokens.values())
    assert all(row.num_scheduled_tokens >= 1 for batch in loop.executor.batches for row in batch.rows)


@pytest.mark.parametrize("max_draft_tokens", [0, 4])
def test_eng_033_a_thousand_requests_that_end_in_every_way_leave_the_pools_full(
    max_draft_tokens: int,
) -> None:
    """Stop, length, abort in each phase, row errors, preemption; several tokens per step or one."""
    choose = random.Random(33)
    loop = StepLoop(num_blocks=24, num_states=6, max_num_seqs=6, max_draft_tokens=max_draft_tokens)
    loop.executor.errors = {f"r{index}": choose.randrange(10, 60) for index in range(0, 1000, 9)}
    num_added = 0
    while num_added < 1000 or loop.scheduler.has_work:
        while num_added < 1000 and loop.scheduler.num_waiting < 3:
            stop_token_ids = choose.sample(range(97), choose.choice([0, 8]))
            num_prompt_tokens, max_tokens = choose.randrange(1, 70), choose.randrange(1, 40)
            loop.add(
                make_request(f"r{num_added}", num_prompt_tokens, max_tokens, stop_token_ids=stop_token_ids)
            )
            num_added += 1
            if num_added % 50 == 0:
                loop.run()
                loop.check_idle()
        if choose.random() < 0.2:
            loop.abort(f"r{choose.randrange(max(0, num_added - 12), num_added)}")
        if choose.random() < 0.1:
            loop.scheduler.preempt(f"r{choose.randrange(max(0, num_added - 12), num_added)}")
        loop.step()
    loop.run()
    loop.check_idle()
    reasons = {end.error_code or end.finish_reason for end in loop.ends.values()}
    assert len(reasons) == 4, reasons
