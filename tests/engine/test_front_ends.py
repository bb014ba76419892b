"""Who is told what after a step, when a core serves several front ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason
from qanat.engine.front_ends import STATS_PERIOD_S, FrontEnds
from qanat.engine.messages import FromCore, StepDone
from qanat.scheduler.stats import SchedulerStats
from tests.support.fake_clock import FakeClock

Sent = list[tuple[int, list[str]]]


def front_ends() -> tuple[FrontEnds, Sent, FakeClock]:
    sent: Sent = []
    clock = FakeClock()

    def send(number: int, message: FromCore) -> None:
        assert isinstance(message, StepDone)
        sent.append((number, [output.request_id for output in message.outputs]))

    return FrontEnds(send, clock), sent, clock


def news(*request_ids: str, ends: bool = False) -> list[RequestOutput]:
    reason = FinishReason.STOP if ends else None
    return [RequestOutput(request_id=one, new_token_ids=[1], finish_reason=reason) for one in request_ids]


def test_each_hears_of_its_own_requests_and_the_first_of_those_that_nobody_has() -> None:
    ends, sent, _ = front_ends()
    ends.open(1)
    ends.open(2)
    assert ends.take(1, ["a", "b"]) and ends.take(2, ["c"]) and ends.take(0, ["d"])
    ends.tell(news("a", "c", "d", "b"), SchedulerStats(), 1, is_last=False)
    assert dict(sent) == {0: ["d"], 1: ["a", "b"], 2: ["c"]}


def test_those_without_news_hear_the_figures_now_and_then_and_at_the_end() -> None:
    ends, sent, clock = front_ends()
    ends.open(1)
    ends.open(2)
    ends.take(1, ["a"])
    ends.tell(news("a"), SchedulerStats(), 1, is_last=False)
    assert sent == [(1, ["a"]), (2, [])]
    ends.tell(news("a"), SchedulerStats(), 2, is_last=False)
    assert sent[2:] == [(1, ["a"])]
    clock.advance(STATS_PERIOD_S)
    ends.tell(news("a"), SchedulerStats(), 3, is_last=False)
    assert sent[3:] == [(1, ["a"]), (2, [])]
    ends.tell(news("a", ends=True), SchedulerStats(), 4, is_last=True)
    assert sorted(sent[5:]) == [(0, []), (1, ["a"]), (2, [])]


def test_one_that_is_gone_leaves_its_requests_and_can_add_none() -> None:
    ends, sent, _ = front_ends()
    ends.open(1)
    ends.take(1, ["a", "b", "c"])
    ends.tell(news("b", ends=True), SchedulerStats(), 1, is_last=False)
    assert ends.close(1) == ["a", "c"] and not ends.has_others and not ends.is_open(1)
    assert not ends.take(1, ["late"])
    assert ends.close(1) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("open"), st.integers(1, 4)),
            st.tuples(st.just("close"), st.integers(1, 4)),
            st.tuples(st.just("add"), st.integers(0, 4)),
            st.tuples(st.just("end"), st.integers(0, 30)),
        )
    )
)
def test_every_news_reaches_its_owner_once_and_nothing_is_kept_of_what_has_ended(
    actions: list[tuple[str, int]],
) -> None:
    ends, sent, _ = front_ends()
    opened: set[int] = set()
    live: dict[str, int] = {}
    for index, (action, number) in enumerate(actions):
        if action == "open":
            ends.open(number)
            opened.add(number)
        elif action == "close":
            assert ends.close(number) == [one for one, owner in live.items() if number and owner == number]
            opened.discard(number)
            live = {one: owner for one, owner in live.items() if owner != number}
        elif action == "add" and ends.take(number, [f"r{index}"]):
            assert number in {0, *opened}
            live[f"r{index}"] = number
        elif action == "end" and live:
            request_id = sorted(live)[number % len(live)]
            sent.clear()
            ends.tell(news(request_id, ends=True), SchedulerStats(), index, is_last=False)
            assert [number for number, ids in sent if ids] == [live.pop(request_id)]
    for number in sorted(opened):
        assert set(ends.close(number)) == {one for one, owner in live.items() if owner == number}
