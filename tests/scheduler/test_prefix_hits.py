"""What is reused between requests, and that nobody can tell by the output: S2, S6 and S14 of docs/hybrid-cache.md."""

from __future__ import annotations

import pytest

from qanat.core import prefix_report as why
from qanat.core.errors import NumericError
from qanat.core.request import FinishReason
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request

PROMPT = [(3 * place) % 83 for place in range(200)]
HYBRID, PLAIN = 4, 0


def loop_of(num_states: int = HYBRID, **settings: object) -> StepLoop:
    base: dict[str, object] = {"num_blocks": 100, "num_checkpoints": 20, "max_num_seqs": 4, "block_size": 16}
    return StepLoop(num_states=num_states, **(base | settings))  # type: ignore[arg-type]


def ask(loop: StepLoop, request_id: str, prompt: list[int], max_tokens: int = 4, **fields: object) -> int:
    """Runs a request to its end; returns how many tokens the cache supplied."""
    loop.add(make_request(request_id, prompt, max_tokens, **fields))
    loop.run()
    assert_undisturbed(loop)
    return loop.ends[request_id].num_cached_tokens


def assert_undisturbed(loop: StepLoop) -> None:
    loop.check_idle()
    for request_id, request in loop.requests.items():
        assert loop.tokens[request_id] == undisturbed_output(request, loop.executor.vocab_size)


def num_computed(loop: StepLoop) -> int:
    return sum(batch.num_tokens for batch in loop.executor.batches)


@pytest.mark.parametrize(("num_states", "num_cached"), [(PLAIN, 192), (HYBRID, 192)])
def test_a_prompt_that_comes_again_is_computed_from_its_last_full_block_on(
    num_states: int, num_cached: int
) -> None:
    loop = loop_of(num_states)
    assert ask(loop, "a", PROMPT) == 0
    assert ask(loop, "b", PROMPT) == num_cached
    report = loop.ends["b"].prefix
    assert report is not None
    assert (report.num_tokens, report.num_matched_tokens, report.why) == (200, 192, why.WHOLE)


@pytest.mark.parametrize("num_states", [PLAIN, HYBRID])
@pytest.mark.parametrize("num_tokens", [32, 64, 128, 192])
def test_a_prompt_of_full_blocks_leaves_something_to_compute(num_states: int, num_tokens: int) -> None:
    """C6: the trial case of nano-vllm, a prompt of exactly so many blocks twice."""
    loop = loop_of(num_states)
    ask(loop, "a", PROMPT[:num_tokens], 70)
    assert ask(loop, "b", PROMPT[:num_tokens], 70) < num_tokens


def test_states_are_kept_where_the_last_turn_and_the_reply_begin() -> None:
    loop = loop_of()
    ask(loop, "a", PROMPT, boundaries=[100, 150])
    assert ask(loop, "b", PROMPT[:110] + [1] * 90) == 64
    assert ask(loop, "c", PROMPT[:160] + [2] * 90) == 128
    assert loop.ends["c"].prefix is not None and loop.ends["c"].prefix.why == why.NO_STATE


def test_the_second_prompt_that_parts_somewhere_leaves_a_state_there() -> None:
    loop = loop_of()
    ask(loop, "a", PROMPT)
    assert ask(loop, "b", PROMPT[:140] + [1] * 60) == 0
    assert ask(loop, "c", PROMPT[:140] + [2] * 60) == 128


@pytest.mark.parametrize("num_states", [PLAIN, HYBRID])
def test_a_next_turn_begins_from_the_answer_of_the_last(num_states: int) -> None:
    loop = loop_of(num_states)
    ask(loop, "a", PROMPT, 80)
    history = PROMPT + loop.tokens["a"]
    num_cached = ask(loop, "b", history + [1] * 40)
    assert num_cached == (272 if num_states == PLAIN else 256)


@pytest.mark.parametrize("num_drafts", [1, 3, 5])
def test_drafts_stop_where_the_state_of_an_answer_is_kept(num_drafts: int) -> None:
    """Else most steps would pass the multiples of 64, and the answer were computed again in the next turn."""
    for num_tokens in range(30, 36):
        loop = loop_of(max_draft_tokens=num_drafts)
        ask(loop, "a", PROMPT[:num_tokens], 110)
        turn = [*PROMPT[:num_tokens], *loop.tokens["a"], 5, 6, 7]
        assert ask(loop, "b", turn) == 128


@pytest.mark.parametrize("num_states", [PLAIN, HYBRID])
def test_a_chunk_leaves_states_on_its_way(num_states: int) -> None:
    loop = loop_of(num_states)
    ask(loop, "a", PROMPT, 1, boundaries=[100])
    (batch,) = loop.executor.batches
    assert batch.rows[0].num_scheduled_tokens == 200
    assert [position for position, _ in batch.rows[0].stores] == ([64, 192] if num_states == HYBRID else [])
    assert ask(loop, "b", [*PROMPT[:150], 1, 2]) == (64 if num_states == HYBRID else 144)


@pytest.mark.parametrize("num_states", [PLAIN, HYBRID])
@pytest.mark.parametrize("overlap_depth", [0, 1, 2])
def test_s14_siblings_wait_for_the_first_of_them(num_states: int, overlap_depth: int) -> None:
    loop = loop_of(num_states, overlap_depth=overlap_depth)
    for index in range(4):
        loop.add(make_request(f"r{index}", PROMPT, 10, choice_index=index))
    loop.step()
    assert (loop.scheduler.num_running, loop.scheduler.num_waiting) == (1, 3)
    loop.run()
    assert_undisturbed(loop)
    assert [loop.ends[f"r{index}"].num_cached_tokens for index in range(4)] == [0, 192, 192, 192]
    assert num_computed(loop) == 200 + 3 * 8 + 4 * 9


def test_s14_others_pass_those_who_wait_and_none_is_lost_when_the_first_ends() -> None:
    loop = loop_of(max_num_batched_tokens=64)
    loop.add(make_request("a", PROMPT))
    loop.step()
    loop.add(make_request("b", PROMPT))
    loop.add(make_request("c", [5] * 20))
    loop.step()
    assert loop.requests["c"].row >= 0 and loop.requests["b"].row < 0
    loop.abort("a")
    loop.run()
    assert loop.ends["b"].finish_reason is FinishReason.LENGTH
    loop.requests.pop("a")
    loop.ends.pop("a")
    assert_undisturbed(loop)


def test_s14_who_waits_can_be_aborted() -> None:
    loop = loop_of(max_num_batched_tokens=64)
    loop.add(make_request("a", PROMPT))
    loop.add(make_request("b", PROMPT))
    loop.step()
    loop.abort("b")
    assert loop.scheduler.num_waiting == 0
    loop.run()
    loop.check_idle()
    assert loop.ends["b"].finish_reason is FinishReason.ABORT


@pytest.mark.parametrize("num_states", [PLAIN, HYBRID])
def test_s6_a_preempted_request_resumes_from_its_own_prefix(num_states: int) -> None:
    loop = loop_of(num_states)
    loop.add(make_request("a", PROMPT, 120))
    while len(loop.tokens["a"]) < 100:
        loop.step()
    before = num_computed(loop)
    assert loop.scheduler.preempt("a")
    loop.run()
    assert_undisturbed(loop)
    num_again = num_computed(loop) - before - 20
    assert 0 < num_again <= (16 if num_states == PLAIN else 64)
    stats = loop.scheduler.stats()
    assert 0 <= num_again - stats.prefixes.num_recomputed_tokens <= 1
    assert loop.ends["a"].num_cached_tokens == 0, "BEN-015: what a preemption recomputes is no hit"


def test_api_012_a_prompt_whose_scores_are_wanted_is_computed_whole_and_kept() -> None:
    loop = loop_of()
    for name in ("a", "b"):
        assert ask(loop, name, PROMPT, prompt_logprobs=1) == 0
        assert [entry.token_ids[0] for entry in loop.prompt_logprobs[name]] == PROMPT[1:]
    assert loop.ends["b"].prefix is not None and loop.ends["b"].prefix.why == why.SCORED
    assert ask(loop, "c", PROMPT) == 192


@pytest.mark.parametrize("field", ["cache_salt", "owner"])
def test_prefixes_with_another_salt_are_apart_and_those_of_another_owner_are_not(field: str) -> None:
    loop = loop_of()
    ask(loop, "a", PROMPT, **{field: "one"})
    assert ask(loop, "b", PROMPT, **{field: "two"}) == (0 if field == "cache_salt" else 192)
    assert ask(loop, "c", PROMPT, **{field: "one"}) == 192


def test_owners_are_apart_where_that_is_asked_for() -> None:
    loop = loop_of(is_by_owner=True)
    ask(loop, "a", PROMPT, owner="one")
    assert ask(loop, "b", PROMPT, owner="two") == 0
    assert ask(loop, "c", PROMPT, owner="one") == 192


def test_after_a_failed_step_nothing_is_found() -> None:
    loop = loop_of()
    ask(loop, "a", PROMPT)
    assert loop.scheduler.stats().prefixes.num_blocks > 0
    loop.take(loop.scheduler.fail_all("engine_dead", "The worker died."))
    stats = loop.scheduler.stats()
    assert (stats.prefixes.num_blocks, stats.prefixes.num_checkpoints) == (0, 0)
    assert ask(loop, "b", PROMPT) == 0


def test_what_led_to_scores_that_are_not_finite_is_not_found_again() -> None:
    loop = loop_of()
    ask(loop, "good", PROMPT[:100])
    loop.executor.errors = {"bad": 1}
    loop.add(make_request("bad", PROMPT))
    loop.run()
    assert loop.ends["bad"].error_code == NumericError.code
    assert ask_without_check(loop, "again", PROMPT) == 0, "what it began from is suspect too"


def ask_without_check(loop: StepLoop, request_id: str, prompt: list[int]) -> int:
    loop.add(make_request(request_id, prompt, 4))
    loop.run()
    return loop.ends[request_id].num_cached_tokens


@pytest.mark.parametrize("num_states", [PLAIN, HYBRID])
def test_what_made_room_is_not_found_and_the_report_says_so(num_states: int) -> None:
    loop = loop_of(num_states, num_blocks=16)
    ask(loop, "a", PROMPT)
    ask(loop, "b", [7] * 240)
    assert ask(loop, "c", PROMPT) == 0
    assert loop.ends["c"].prefix is not None and loop.ends["c"].prefix.why == why.EVICTED
    assert loop.scheduler.stats().prefixes.num_evicted_blocks > 0


def test_without_places_for_states_a_hybrid_model_finds_nothing() -> None:
    loop = loop_of(num_checkpoints=0)
    ask(loop, "a", PROMPT)
    assert ask(loop, "b", PROMPT) == 0


def test_without_reuse_the_report_says_so() -> None:
    loop = loop_of(num_checkpoints=None)
    ask(loop, "a", PROMPT)
    assert ask(loop, "b", PROMPT) == 0
    assert loop.ends["b"].prefix is not None and loop.ends["b"].prefix.why == why.OFF


def test_prompts_that_have_less_than_a_block_in_common_say_so() -> None:
    loop = loop_of()
    ask(loop, "a", PROMPT)
    ask(loop, "b", PROMPT[:10])
    ask(loop, "c", [9] * 100)
    reports = [loop.ends[name].prefix for name in "bc"]
    assert [report.why for report in reports if report is not None] == [why.SHORT, why.NEW]
