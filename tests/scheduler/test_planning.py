"""What a step is made of: rules S1 to S4 of docs/hybrid-cache.md."""

from __future__ import annotations

from qanat.core.batch import ScheduledBatch
from tests.support.step_loop import StepLoop, make_request


def work(loop: StepLoop, batch: ScheduledBatch | None) -> list[tuple[str, int]]:
    """(request id, tokens) of each row, in batch order."""
    assert batch is not None
    by_row = {request.row: request.request_id for request in loop.requests.values()}
    held = {row: held.new.request_id for row, held in loop.executor.rows.items()}
    return [(held.get(r.row, by_row.get(r.row, "?")), r.num_scheduled_tokens) for r in batch.rows]


def test_s1_decodes_come_first_then_prompts_under_way_then_admissions() -> None:
    loop = StepLoop(max_num_batched_tokens=128, max_decode_stall_s=1e9)
    loop.add(make_request("decoding", 10))
    loop.step()
    loop.add(make_request("long", 150))
    loop.add(make_request("short", 40))
    # 127 tokens are left beside the decode: the long prompt's chunk ends on the grid, 63 remain for a whole prompt.
    assert work(loop, loop.step()) == [("decoding", 1), ("long", 64), ("short", 40)]
    assert work(loop, loop.step()) == [("decoding", 1), ("short", 1), ("long", 86)]


def test_s1_the_token_budget_bounds_decodes_too_and_the_first_in_rank_are_served() -> None:
    loop = StepLoop(max_num_batched_tokens=2, max_num_seqs=4)
    for name in ("a", "b", "c"):
        loop.add(make_request(name, 1, 3))
    assert work(loop, loop.step()) == [("a", 1), ("b", 1)]
    assert work(loop, loop.step()) == [("a", 1), ("b", 1)]
    loop.run()
    loop.check_idle()


def test_s2_chunks_end_on_the_grid_and_the_last_one_where_the_prompt_ends() -> None:
    loop = StepLoop(max_num_batched_tokens=100)
    loop.add(make_request("a", 200, 2))
    assert [work(loop, loop.step()) for _ in range(4)] == [[("a", 64)], [("a", 64)], [("a", 72)], [("a", 1)]]


def test_s2_a_budget_below_the_grid_still_makes_progress_and_meets_the_grid() -> None:
    loop = StepLoop(max_num_batched_tokens=48)
    loop.add(make_request("a", 130, 1))
    assert [work(loop, loop.step())[0][1] for _ in range(4)] == [48, 16, 48, 18]
    loop.check_idle()


def test_s2_a_second_prompt_waits_rather_than_leave_the_grid() -> None:
    loop = StepLoop(max_num_batched_tokens=192, long_prefill_token_threshold=128)
    loop.add(make_request("a", 300))
    loop.add(make_request("b", 300))
    assert work(loop, loop.step()) == [("a", 128), ("b", 64)]
    loop = StepLoop(max_num_batched_tokens=100, max_decode_stall_s=1e9)
    loop.add(make_request("a", 300))
    loop.add(make_request("b", 300))
    assert work(loop, loop.step()) == [("a", 64)]


def test_s2_the_threshold_bounds_one_request_and_leaves_room_for_others() -> None:
    loop = StepLoop(max_num_batched_tokens=256, long_prefill_token_threshold=64)
    loop.add(make_request("a", 300))
    loop.add(make_request("b", 70))
    assert work(loop, loop.step()) == [("a", 64), ("b", 64)]
    assert work(loop, loop.step()) == [("a", 64), ("b", 6)]


def test_s2_a_threshold_below_the_grid_is_kept_for_every_request() -> None:
    loop = StepLoop(max_num_batched_tokens=256, long_prefill_token_threshold=16)
    loop.add(make_request("a", 40))
    loop.add(make_request("b", 40))
    assert [work(loop, loop.step()) for _ in range(3)] == [
        [("a", 16), ("b", 16)],
        [("a", 16), ("b", 16)],
        [("a", 8), ("b", 8)],
    ]


def test_s3_prefill_is_bounded_by_time_four_times_as_long_while_nothing_decodes() -> None:
    loop = StepLoop(max_num_batched_tokens=4096, num_blocks=1000, max_decode_stall_s=0.25, max_model_len=9000)
    loop.scheduler.observe_step(1000, 1.0)
    loop.add(make_request("alone", 2000, 50))
    # 1000 tokens fit into four times 0.25 s: 15 times the grid.
    assert work(loop, loop.step()) == [("alone", 960)]
    while loop.tokens["alone"] == []:
        loop.step()
    loop.scheduler.observe_step(
        1_000_000, 1000.0
    )  # a millisecond per token, whatever the loop itself observed
    loop.add(make_request("second", 2000))
    # 250 tokens fit into 0.25 s: three times the grid.
    assert work(loop, loop.step()) == [("alone", 1), ("second", 192)]


def test_s3_the_first_prefill_is_bounded_too() -> None:
    loop = StepLoop(max_num_batched_tokens=100_000, num_blocks=1000, max_model_len=9000)
    loop.add(make_request("a", 5000))
    assert work(loop, loop.step()) == [("a", 1024)]


def test_s3_at_least_64_prefill_tokens_are_computed_however_slow() -> None:
    loop = StepLoop(max_num_batched_tokens=4096, max_decode_stall_s=0.0)
    loop.add(make_request("a", 10, 30))
    loop.step()
    loop.add(make_request("b", 150))
    assert work(loop, loop.step()) == [("a", 1), ("b", 64)]
    assert work(loop, loop.step()) == [("a", 1), ("b", 64)]
    assert work(loop, loop.step()) == [("a", 1), ("b", 22)]


def test_without_chunked_prefill_prompts_are_whole_or_not_at_all() -> None:
    loop = StepLoop(max_num_batched_tokens=100, is_chunked_prefill_enabled=False, max_decode_stall_s=1e9)
    loop.add(make_request("a", 60))
    loop.add(make_request("b", 60))
    loop.add(make_request("c", 10))
    # b does not fit beside a, and c does not overtake it.
    assert work(loop, loop.step()) == [("a", 60)]
    assert work(loop, loop.step()) == [("a", 1), ("b", 60), ("c", 10)]


def test_without_chunked_prefill_one_prompt_per_step_may_exceed_the_stall_bound() -> None:
    loop = StepLoop(max_num_batched_tokens=1000, is_chunked_prefill_enabled=False, max_decode_stall_s=0.0)
    loop.add(make_request("a", 10, 50))
    loop.step()
    for name in ("b", "c"):
        loop.add(make_request(name, 200))
    assert work(loop, loop.step()) == [("a", 1), ("b", 200)]
    assert work(loop, loop.step()) == [("a", 1), ("b", 1), ("c", 200)]
    loop.add(make_request("within the bound", 10))
    loop.add(make_request("beyond it", 200))
    assert work(loop, loop.step()) == [("a", 1), ("b", 1), ("c", 1), ("within the bound", 10)]


def test_without_chunked_prefill_a_continuation_longer_than_the_step_is_computed_in_pieces() -> None:
    loop = StepLoop(max_num_batched_tokens=64, is_chunked_prefill_enabled=False)
    loop.add(make_request("a", 60, 30, output_token_ids=list(range(20))))
    assert work(loop, loop.step()) == [("a", 64)]
    assert work(loop, loop.step()) == [("a", 16)]
    loop.run()
    assert len(loop.tokens["a"]) == 30


def test_s4_admission_leaves_one_block_for_each_running_request_that_may_grow() -> None:
    # 6 blocks of 16. a takes 2 and may grow; b would take 2 and may grow: 2 + 2 + one for each = 6.
    loop = StepLoop(num_blocks=6)
    loop.add(make_request("a", 32, 16))
    loop.add(make_request("b", 32, 16))
    assert work(loop, loop.step()) == [("a", 32), ("b", 32)]
    loop = StepLoop(num_blocks=5)
    loop.add(make_request("a", 32, 16))
    loop.add(make_request("b", 32, 16))
    assert work(loop, loop.step()) == [("a", 32)]
    loop.run()
    assert loop.scheduler.stats().num_preemptions == 0


def test_s4_requests_that_cannot_grow_need_no_headroom() -> None:
    loop = StepLoop(num_blocks=4)
    loop.add(make_request("a", 30, 3))  # 32 tokens are computed at most: two blocks until the end
    loop.add(make_request("b", 30, 3))
    assert work(loop, loop.step()) == [("a", 30), ("b", 30)]


def test_s4_the_head_of_the_queue_is_not_overtaken() -> None:
    loop = StepLoop(num_blocks=8)
    loop.add(make_request("a", 64, 32))
    loop.add(make_request("large", 96, 32))
    loop.add(make_request("small", 1, 1))
    assert work(loop, loop.step()) == [("a", 64)]
    assert loop.scheduler.num_waiting == 2


def test_admission_waits_for_a_row_and_for_a_state() -> None:
    for limits in ({"max_num_seqs": 2}, {"num_states": 2}):
        loop = StepLoop(**limits)  # type: ignore[arg-type]
        for name in ("a", "b", "c"):
            loop.add(make_request(name, 5, 3))
        assert [name for name, _ in work(loop, loop.step())] == ["a", "b"]
        loop.run()
        loop.check_idle()


def test_priority_policy_serves_lower_numbers_first() -> None:
    loop = StepLoop(policy="priority", max_num_seqs=1)
    loop.add(make_request("later", 5, 1, priority=5))
    loop.add(make_request("sooner", 5, 1, priority=-5))
    assert work(loop, loop.step()) == [("sooner", 5)]


def test_fcfs_policy_ignores_priorities() -> None:
    loop = StepLoop(policy="fcfs", max_num_seqs=1)
    loop.add(make_request("first", 5, 1, priority=5))
    loop.add(make_request("second", 5, 1, priority=-5))
    assert work(loop, loop.step()) == [("first", 5)]


def test_a_new_row_brings_what_the_worker_needs() -> None:
    loop = StepLoop()
    loop.add(
        make_request(
            "a", [3, 4, 5], 9, output_token_ids=[6, 7], stop_token_ids=[90], choice_index=2, request_seed=11
        )
    )
    batch = loop.step()
    assert batch is not None
    (new,) = batch.new_rows
    assert (new.row, new.request_id, new.token_ids, new.num_prompt_tokens) == (0, "a", [3, 4, 5, 6, 7], 3)
    assert (new.num_computed_tokens, new.seed, new.choice_index, new.stop_token_ids) == (0, 11, 2, [90])
    assert len(new.block_ids) == 1 and new.state_id > 0
    assert new.sampling is loop.requests["a"].sampling


def test_a_decode_gets_a_block_exactly_when_it_enters_one() -> None:
    loop = StepLoop(block_size=16)
    loop.add(make_request("a", 15, 20))
    new_blocks = []
    while loop.scheduler.has_work:
        batch = loop.step()
        assert batch is not None
        new_blocks.append(len(batch.rows[0].new_block_ids))
    # Step 0 computes 15 tokens, step 1 the 16th, step 2 the 17th, step 18 the 33rd.
    assert [step for step, count in enumerate(new_blocks) if count] == [2, 18]
    assert sum(new_blocks) == 2


def test_nothing_is_scheduled_when_nothing_is_there() -> None:
    loop = StepLoop()
    assert loop.scheduler.schedule() is None
    assert not loop.scheduler.has_work
    assert loop.step() is None
