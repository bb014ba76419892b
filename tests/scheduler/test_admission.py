"""What is refused at once, and what a full queue refuses."""

from __future__ import annotations

import pytest

from qanat.cache.manager import HybridCacheManager
from qanat.config.resolved import SchedulerLimits
from qanat.core.errors import CapacityError, ContextLengthError, InvalidRequestError, QueueFullError
from qanat.scheduler.scheduler import Scheduler
from tests.support.fake_clock import FakeClock
from tests.support.step_loop import StepLoop, make_request, small_spec


def test_a_request_longer_than_the_window_is_refused_with_numbers_and_the_setting() -> None:
    loop = StepLoop(max_model_len=100)
    loop.add(make_request("fits", 90, 10))
    with pytest.raises(
        ContextLengthError, match=r"91 prompt tokens and max_tokens 10 make 101.*100.*--max-model-len"
    ):
        loop.add(make_request("too long", 91, 10))


def test_a_request_that_the_whole_cache_cannot_hold_is_refused() -> None:
    # The last output token is never computed, so that 4 blocks of 16 hold 65 tokens, and that is the bound.
    loop = StepLoop(num_blocks=4)
    loop.add(make_request("fits", 60, 5))
    with pytest.raises(
        ContextLengthError, match=r"need 5 blocks of 16.*cache has 4 \(--kv-cache-memory-bytes\)"
    ):
        loop.add(make_request("too long", 60, 6))
    loop.run()
    loop.check_idle()
    assert len(loop.tokens["fits"]) == 5


def test_without_chunked_prefill_a_prompt_must_fit_one_step() -> None:
    loop = StepLoop(max_num_batched_tokens=64, is_chunked_prefill_enabled=False)
    loop.add(make_request("fits", 64))
    with pytest.raises(ContextLengthError, match=r"65 tokens.*64 tokens \(--max-num-batched-tokens\)"):
        loop.add(make_request("too long", 65))


def test_a_prompt_that_only_fits_without_output_is_accepted_with_max_tokens_zero() -> None:
    loop = StepLoop(max_model_len=64, num_blocks=4)
    loop.add(make_request("echo", 64, 0))
    loop.run()
    assert loop.tokens["echo"] == []


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": 5, "max_tokens": None}, "max_tokens must be set"),
        ({"prompt": 5, "max_tokens": 2, "output_token_ids": [1, 2]}, "nothing left to generate"),
        ({"prompt": 5, "max_tokens": 0, "output_token_ids": [1]}, "nothing left to generate"),
    ],
)
def test_malformed_requests_are_refused(request_fields: dict[str, object], message: str) -> None:
    loop = StepLoop()
    with pytest.raises(InvalidRequestError, match=message):
        loop.add(make_request("a", **request_fields))  # type: ignore[arg-type]
    assert not loop.scheduler.has_work


def test_a_refused_request_leaves_nothing_behind_and_its_id_can_be_used() -> None:
    loop = StepLoop(max_model_len=100)
    with pytest.raises(ContextLengthError):
        loop.add(make_request("a", 200))
    loop.add(make_request("a", 20))
    loop.run()
    loop.check_idle()


def test_an_id_that_is_live_cannot_be_used_again() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10))
    with pytest.raises(ValueError, match="already live"):
        loop.add(make_request("a", 10))
    loop.run()
    loop.check_idle()


def test_the_queue_is_bounded_in_requests() -> None:
    loop = StepLoop(max_waiting_requests=2, max_num_seqs=1)
    for request_id in "abc":  # one for the free row, two for the queue
        loop.add(make_request(request_id, 10))
    with pytest.raises(QueueFullError, match=r"2 requests are waiting.*--max-num-queued-reqs"):
        loop.add(make_request("d", 10))
    loop.step()  # a leaves the queue for the batch, and its row is not free any more
    with pytest.raises(QueueFullError):
        loop.add(make_request("d", 10))
    loop.run()
    loop.check_idle()


def test_the_queue_is_bounded_in_tokens_but_an_empty_one_takes_any_request() -> None:
    loop = StepLoop(max_waiting_tokens=100)
    loop.add(make_request("large", 150))
    with pytest.raises(QueueFullError, match=r"150 tokens are waiting; with 10 more.*100"):
        loop.add(make_request("small", 10))
    loop.abort("large")
    loop.add(make_request("small", 10))
    loop.add(make_request("exact", 90))
    with pytest.raises(QueueFullError):
        loop.add(make_request("one more", 1))


@pytest.mark.parametrize(("num_blocks", "num_states"), [(1, 2), (2, 1), (2, 0)])
def test_a_cache_in_which_nothing_can_run_is_refused_at_the_start(num_blocks: int, num_states: int) -> None:
    limits = SchedulerLimits(max_num_batched_tokens=64, max_num_seqs=2, max_model_len=64)
    cache = HybridCacheManager(small_spec(), num_blocks, num_states)
    with pytest.raises(CapacityError, match="--kv-cache-memory-bytes"):
        Scheduler(limits, cache, FakeClock())
