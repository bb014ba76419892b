"""S10 where outputs weigh more than prompts: owners are charged for what is expected of a request when it enters."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.request import FinishReason
from qanat.scheduler.output_bill import PORTION, UNKNOWN_OUTPUT
from tests.support.step_loop import StepLoop, make_request


def owner_of(request_id: str) -> str:
    return request_id.split("-")[0]


def computed(loop: StepLoop) -> Counter[str]:
    """Tokens computed of prompts that have begun, and output made, by owner."""
    served: Counter[str] = Counter()
    for name, request in loop.requests.items():
        live = loop.scheduler._live.get(name)
        if name in loop.ends or (live is not None and live.first_scheduled_s is not None):
            served[owner_of(name)] += request.num_prompt_tokens + request.num_output_tokens
    return served


def entered(loop: StepLoop, num_steps: int) -> Counter[str]:
    """Requests that enter the batch in so many steps, by owner."""
    found: Counter[str] = Counter()
    for _ in range(num_steps):
        batch = loop.step()
        assert batch is not None
        found.update(owner_of(new.request_id) for new in batch.new_rows)
    return found


def test_s10_short_prompts_with_long_outputs_do_not_take_all_rows() -> None:
    loop = StepLoop(max_num_batched_tokens=512, max_num_seqs=16, num_blocks=1000, max_waiting_requests=500)
    for number in range(60):
        loop.add(make_request(f"talker-{number}", 4, 400, owner="talker"))
        loop.add(make_request(f"reader-{number}", 300, 4, owner="reader"))
    # Nothing has ended, so the first outputs are taken for long ones; nobody has more than his turn.
    first = entered(loop, 12)
    assert first["reader"] >= 8 and first["talker"] >= 8


def test_s10_owners_of_short_and_of_long_outputs_have_equal_shares_of_the_tokens() -> None:
    loop = StepLoop(max_num_batched_tokens=128, max_num_seqs=4, num_blocks=400, max_waiting_requests=900)
    for number in range(40):
        loop.add(make_request(f"talker-{number}", 4, 120, owner="talker"))
    for number in range(400):
        loop.add(make_request(f"reader-{number}", 40, 4, owner="reader"))
    apart = 0
    for _ in range(1000):
        loop.step()
        served = computed(loop)
        apart = max(apart, abs(served["talker"] - served["reader"]))
    assert loop.scheduler.num_waiting and min(served.values()) > 1500
    # What rows can hold that was paid for and not yet made, and one turn.
    assert apart <= 4 * 124 + 124


def test_s10_output_that_nobody_expected_is_charged_while_it_is_made() -> None:
    loop = StepLoop(max_num_seqs=2, num_blocks=400, max_waiting_requests=900)
    for number in range(3):  # the owner is known for short answers
        loop.add(make_request(f"sly-{number}", 4, 2, owner="sly"))
    loop.add(make_request("other-0", 4, 2000, owner="other"))
    while len(loop.ends) < 3:
        loop.step()
    loop.add(make_request("sly-long", 4, 1000, owner="sly"))
    loop.step()
    account = loop.scheduler._waiting._owners["sly"]
    while loop.requests["sly-long"].num_output_tokens < 600:
        loop.step()
        assert account.num_served - account.num_unspent >= 3 * 6 + 4 + len(loop.tokens["sly-long"])
        assert account.num_served <= 3 * 6 + 4 + len(loop.tokens["sly-long"]) + UNKNOWN_OUTPUT + PORTION


def test_s10_what_was_not_made_is_given_back() -> None:
    loop = StepLoop(max_num_seqs=2, num_blocks=400)
    loop.add(make_request("stays-0", 16, 2000, owner="stays"))
    loop.add(make_request("leaves-0", 16, 1000, owner="leaves"))
    for _ in range(5):
        loop.step()
    account = loop.scheduler._waiting._owners["leaves"]
    assert account.num_served == 16 + UNKNOWN_OUTPUT
    num_made = loop.requests["leaves-0"].num_output_tokens
    loop.abort("leaves-0")
    assert account.num_served - account.num_unspent == 16 + num_made
    loop.add(make_request("leaves-1", 16, 2, owner="leaves"))
    loop.step()
    # Beside what was lifted for the time without a request, the next one is paid from what was left.
    assert account.num_unspent < 16 + UNKNOWN_OUTPUT - num_made


def test_s10_a_newcomer_is_not_charged_for_a_bound_that_hardly_anybody_reaches() -> None:
    loop = StepLoop(max_num_seqs=1, num_blocks=400)
    loop.add(make_request("new-0", 16, 3000, owner="new", stop_token_ids=list(range(97))))
    loop.add(make_request("new-1", 16, 3000, owner="new"))
    loop.step()
    account = loop.scheduler._waiting._owners["new"]
    assert loop.ends["new-0"].finish_reason is FinishReason.STOP
    assert (account.num_served, account.num_unspent) == (16 + UNKNOWN_OUTPUT, UNKNOWN_OUTPUT - 1)
    loop.step()
    assert account.num_served == 16 + UNKNOWN_OUTPUT, "one token is expected now, and paid from what is left"


ASKS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(1, 90), st.integers(0, 40), st.sampled_from(["", "abort", "preempt"])
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=20, deadline=None)
@given(ASKS, st.integers(2, 4))
def test_s10_accounts_come_to_what_was_computed(asks: list[tuple[int, int, int, str]], num_rows: int) -> None:
    loop = StepLoop(max_num_batched_tokens=64, max_num_seqs=num_rows, num_blocks=60)
    loop.add(make_request("guard", 1, 900, owner="guard"))  # accounts are kept as long as anything runs
    for number, (owner, num_prompt, max_tokens, _) in enumerate(asks):
        loop.add(make_request(f"{owner}-{number}", num_prompt, max_tokens, owner=str(owner)))
    actions = {f"{owner}-{number}": what for number, (owner, _, _, what) in enumerate(asks) if what}
    for _ in range(100):
        loop.step()
        for name in [name for name in actions if loop.requests[name].num_output_tokens > 3]:
            if actions.pop(name) == "abort":
                loop.abort(name)
            else:
                loop.scheduler.preempt(name)
    for name, account in loop.scheduler._waiting._owners.items():
        owned = [request for request in loop.requests.values() if request.owner == name]
        if name == "guard" or any(request.request_id not in loop.ends for request in owned):
            continue
        spent = sum(request.num_prompt_tokens + request.num_output_tokens for request in owned)
        assert account.num_served - account.num_unspent == spent
    loop.run()
    loop.check_idle()
