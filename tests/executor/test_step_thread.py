from __future__ import annotations

import threading

import pytest

from qanat.executor.step_thread import StepThread


def test_in_the_callers_thread_everything_is_done_at_once() -> None:
    steps = StepThread(is_own=False)
    future = steps.submit(threading.get_ident)
    assert future.done() and future.result() == threading.get_ident() and not steps.is_busy
    steps.stop()


def test_a_thread_of_their_own_runs_one_after_the_other_while_the_caller_goes_on() -> None:
    steps, may_go_on, order = StepThread(is_own=True), threading.Event(), list[int]()

    def act(number: int) -> int:
        may_go_on.wait(60)
        order.append(number)
        return threading.get_ident()

    futures = [steps.submit(lambda number=number: act(number)) for number in range(3)]  # type: ignore[misc]
    assert steps.is_busy and not futures[0].done()
    may_go_on.set()
    threads = {future.result() for future in futures}
    assert order == [0, 1, 2] and len(threads) == 1 and threading.get_ident() not in threads
    assert steps.call(lambda: 7) == 7
    steps.stop()
    steps.stop()
    with pytest.raises(RuntimeError):
        steps.submit(lambda: 7)


@pytest.mark.parametrize("is_own", [False, True])
def test_an_exception_is_in_the_future_and_the_next_call_runs(is_own: bool) -> None:
    steps = StepThread(is_own)
    future = steps.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        future.result()
    assert steps.call(lambda: 8) == 8
    steps.stop()
