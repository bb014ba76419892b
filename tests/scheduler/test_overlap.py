"""S15: a row goes ahead before its newest token is known; who has ended meanwhile costs nobody anything."""

from __future__ import annotations

import pytest

from qanat.core.request import FinishReason
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request

PROMPT = [(5 * place) % 83 for place in range(200)]


def overlapped(**fields: object) -> StepLoop:
    return StepLoop(overlap_depth=1, **fields)  # type: ignore[arg-type]


def num_rows(loop: StepLoop) -> int:
    return sum(len(batch.rows) for batch in loop.executor.batches)


def check_undisturbed(loop: StepLoop) -> None:
    loop.check_idle()
    for request_id, request in loop.requests.items():
        assert loop.tokens[request_id] == undisturbed_output(request, loop.executor.vocab_size)


def test_a_step_is_scheduled_for_a_row_whose_token_is_not_known() -> None:
    loop = overlapped()
    loop.add(make_request("r", 20, 6))
    for step in range(3):
        assert loop.step() is not None and len(loop.tokens["r"]) == step
    loop.run()
    check_undisturbed(loop)


def test_nothing_is_computed_beyond_the_last_token_that_there_may_be() -> None:
    counts = []
    for loop in (StepLoop(), overlapped()):
        for index in range(3):
            loop.add(make_request(f"r{index}", 20 + index, 1 + 4 * index))
        loop.run()
        check_undisturbed(loop)
        counts.append(num_rows(loop))
    assert counts[0] == counts[1]


def stopping(request_id: str, max_tokens: int = 20, **fields: object) -> tuple[list[int], int]:
    """The fields of a request that ends by a stop token in the middle: that token."""
    whole = undisturbed_output(make_request(request_id, PROMPT[:30], max_tokens), 97)
    token = next(token for place, token in enumerate(whole) if place > 4 and token not in whole[:place])
    return [token], whole.index(token) + 1


def test_a_row_whose_request_has_stopped_is_given_up_and_its_place_taken() -> None:
    stops, size = stopping("r")
    loop = overlapped(max_num_seqs=1, num_blocks=4)
    loop.add(make_request("r", PROMPT[:30], 20, stop_token_ids=stops))
    loop.add(make_request("next", 30, 20))
    loop.run()
    assert loop.ends["r"].finish_reason is FinishReason.STOP and len(loop.tokens["r"]) == size
    rows = [row.num_scheduled_tokens for batch in loop.executor.batches for row in batch.rows]
    assert rows == [30, *[1] * size, 30, *[1] * 19], "one row more than tokens behind the first"
    check_undisturbed(loop)


@pytest.mark.parametrize("num_states", [0, 8])
@pytest.mark.parametrize("size", [64, 128, 130])
def test_what_was_given_up_is_not_found_and_the_ends_of_prompts_are(num_states: int, size: int) -> None:
    """A prompt that ends on the grid leaves its state there, though the next step is scheduled meanwhile."""
    found = []
    for depth in (0, 1):
        loop = StepLoop(num_states=num_states, num_checkpoints=20, num_blocks=200, overlap_depth=depth)
        loop.add(make_request("a", PROMPT[:size], 70))
        loop.run()
        history = PROMPT[:size] + loop.tokens["a"]
        loop.add(make_request("b", [*PROMPT[:size], 1, 2, 3], 5))
        loop.add(make_request("c", [*history, 1], 5))
        loop.run()
        check_undisturbed_but_cached(loop)
        found.append([loop.ends[name].num_cached_tokens for name in "bc"])
    assert found[0] == found[1] and all(found[0])


def check_undisturbed_but_cached(loop: StepLoop) -> None:
    for request_id, request in loop.requests.items():
        assert loop.tokens[request_id] == undisturbed_output(request, loop.executor.vocab_size)


def test_a_block_that_a_stop_token_would_fill_is_not_found() -> None:
    """The row of that token was scheduled and given up: nobody has computed the block's last place."""
    stops, size = stopping("r")
    loop = overlapped(num_states=0, num_checkpoints=0, block_size=1)
    loop.add(make_request("r", PROMPT[:30], 20, stop_token_ids=stops))
    loop.run()
    loop.add(make_request("more", PROMPT[:30] + loop.tokens["r"] + [1], 4))
    loop.run()
    assert loop.ends["more"].num_cached_tokens == 30 + size - 1
    check_undisturbed_but_cached(loop)


def test_abort_and_preemption_while_a_step_is_on_its_way() -> None:
    loop = overlapped(num_checkpoints=20, num_blocks=100)
    loop.add(make_request("a", PROMPT[:64], 30))
    loop.add(make_request("b", PROMPT[:70], 30))
    for _ in range(5):
        loop.step()
    assert loop.scheduler.preempt("b")
    loop.step()
    loop.abort("a")
    loop.add(make_request("c", PROMPT[:130], 30))
    loop.run()
    assert loop.ends["a"].finish_reason is FinishReason.ABORT
    for name in "bc":
        assert loop.tokens[name] == undisturbed_output(loop.requests[name], loop.executor.vocab_size)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 17])
def test_drafts_on_their_way_have_their_places(max_tokens: int) -> None:
    """Blocks of 4: most steps reserve for drafts of which nobody knows yet how many will be tokens."""
    loop = overlapped(block_size=4, max_draft_tokens=3, num_blocks=100)
    for index in range(4):
        loop.add(make_request(f"r{index}", 5 + index, max_tokens))
    loop.run()
    check_undisturbed(loop)
