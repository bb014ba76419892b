"""Requests whose form is still compiled: the loop goes on, and they may end in every way meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from qanat.cache.manager import HybridCacheManager
from qanat.config.resolved import SchedulerLimits
from qanat.config.structured import BACKENDS
from qanat.core.constraint import Constraint
from qanat.core.errors import DeadlineError, QueueFullError, StructuredOutputError
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.engine.core import EngineCore
from qanat.engine.form_preparation import NUM_THREADS, FormPreparation
from qanat.scheduler.scheduler import Scheduler
from qanat.structured.factory import Form, FormFactory
from qanat.structured.vocabulary import Vocabulary
from tests.support.fake_clock import FakeClock
from tests.support.fake_executor import FakeExecutor
from tests.support.small_vocabulary import VOCABULARY, constraint_of
from tests.support.step_loop import make_request, small_spec

WAIT_S = 60.0


class HeldFactory(FormFactory):
    """Compiles nothing before it is let go."""

    def __init__(self) -> None:
        super().__init__(lambda: VOCABULARY)
        self.may_go = threading.Event()
        self.num_compiled = 0
        self._counting = threading.Lock()

    def form(self, constraint: Constraint) -> Form:
        assert self.may_go.wait(WAIT_S)
        with self._counting:
            self.num_compiled += self.known(constraint) is None
        return super().form(constraint)


class Bench:
    """A core with a fake model and a held compiler."""

    def __init__(self, max_waiting: int = 8) -> None:
        self.factory = HeldFactory()
        self.clock = FakeClock()
        self.preparation = FormPreparation(self.factory, "guidance", max_waiting, self.clock)
        limits = SchedulerLimits(max_num_batched_tokens=64, max_num_seqs=4, max_model_len=128)
        cache = HybridCacheManager(small_spec(), 32, 8)
        scheduler = Scheduler(limits, cache, self.clock)
        self.core = EngineCore(scheduler, FakeExecutor(32, 8, 16, 4, 64), self.clock, self.preparation)

    def add(self, request_id: str, constraint: Constraint | None = None, **fields: object) -> Request:
        request = make_request(request_id, 3, 2, constraint=constraint, **fields)
        self.core.add(request)
        return request

    def finish(self) -> dict[str, RequestOutput]:
        """Lets the compiler go and steps until all is done; the last output of each request."""
        self.factory.may_go.set()
        last = {}
        while self.core.has_work or self.core.is_preparing:
            if not self.core.has_work:
                self.core.await_forms(WAIT_S)
            for output in self.core.step():
                last[output.request_id] = output
        return last


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.factory.may_go.set()
    bench.core.shutdown()


def test_plain_requests_run_while_a_form_is_compiled(bench: Bench) -> None:
    bench.add("held", constraint_of(choice=["ok"]))
    assert bench.core.is_preparing and not bench.core.has_work
    bench.add("plain")
    ended: list[str] = []
    while bench.core.has_work:
        ended += [one.request_id for one in bench.core.step() if one.finish_reason is not None]
    assert ended == ["plain"]
    last = bench.finish()
    assert last["held"].finish_reason is FinishReason.LENGTH


def test_requests_with_the_same_form_share_its_compilation(bench: Bench) -> None:
    for name in "abc":
        bench.add(name, constraint_of(choice=["ok"]))
    assert set(bench.finish()) == {"a", "b", "c"}
    assert bench.factory.num_compiled == 1
    bench.add("d", constraint_of(choice=["ok"]))
    assert bench.core.has_work and not bench.core.is_preparing, "what is compiled need not wait"
    assert set(bench.finish()) == {"d"}


def test_a_form_that_fails_ends_its_request_only(bench: Bench) -> None:
    bench.add("bad", Constraint("guidance", "start: nowhere"))
    bench.add("good", constraint_of(choice=["ok"]))
    last = bench.finish()
    assert last["bad"].error_code == StructuredOutputError.code
    assert last["bad"].finish_reason is FinishReason.ERROR
    assert last["good"].finish_reason is FinishReason.LENGTH


def test_a_request_may_be_aborted_while_it_waits(bench: Bench) -> None:
    bench.add("r", constraint_of(choice=["ok"]))
    bench.core.abort("r")
    (output,) = bench.core.step()
    assert (output.request_id, output.finish_reason) == ("r", FinishReason.ABORT)
    assert bench.finish() == {}
    bench.core.abort("r")
    assert not bench.core.has_work


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ("deadline_s", "timeout"),
        ("queue_deadline_s", "timeout.queue"),
        ("first_token_deadline_s", "timeout.first_token"),
    ],
)
def test_a_deadline_passes_while_the_form_is_compiled(bench: Bench, field: str, param: str) -> None:
    fields = {"deadline_s": bench.clock() + 60, field: bench.clock() + 5}
    bench.add("r", constraint_of(choice=["ok"]), **fields)
    assert not bench.core.has_work
    bench.clock.advance(6)
    assert bench.core.has_work
    (output,) = bench.core.step()
    assert (output.finish_reason, output.error_code) == (FinishReason.ERROR, DeadlineError.code)
    assert output.error_param == param and f"{param} of 5 s" in output.error_message


def occupy(bench: Bench) -> list[str]:
    """Requests whose forms take all threads; their names."""
    names = [f"first{i}" for i in range(NUM_THREADS)]
    for name in names:
        bench.add(name, constraint_of(choice=[name]))
    return names


def test_what_nobody_waits_for_any_more_is_not_compiled(bench: Bench) -> None:
    first = occupy(bench)
    for name in "ab":
        bench.add(name, constraint_of(choice=["shared"]))
    bench.add("late", constraint_of(choice=["late"]), deadline_s=bench.clock() + 5)
    bench.core.abort("a")
    bench.clock.advance(6)
    assert {one.request_id for one in bench.core.step()} == {"a", "late"}
    bench.core.abort("b")
    assert set(bench.finish()) == {"b", *first}
    bench.add("next", constraint_of(choice=["next"]))  # compiled in its turn: the queue is empty then
    assert set(bench.finish()) == {"next"}
    assert bench.factory.num_compiled == NUM_THREADS + 1


def test_one_who_leaves_takes_nothing_from_others_nor_from_who_comes_later(bench: Bench) -> None:
    occupy(bench)
    for name in "ab":
        bench.add(name, constraint_of(choice=["shared"]))
    bench.core.abort("a")
    bench.add("c", constraint_of(choice=["left"]))
    bench.core.abort("c")
    bench.add("d", constraint_of(choice=["left"]))
    last = bench.finish()
    assert {name: last[name].finish_reason for name in "abcd"} == {
        "a": FinishReason.ABORT,
        "b": FinishReason.LENGTH,
        "c": FinishReason.ABORT,
        "d": FinishReason.LENGTH,
    }
    assert bench.factory.num_compiled == NUM_THREADS + 2


def test_so_many_may_wait_and_no_more() -> None:
    bench = Bench(max_waiting=2)
    for name in "abc":
        bench.add(name, constraint_of(choice=[name]))
    (output,) = bench.core.step()
    assert (output.request_id, output.error_code) == ("c", QueueFullError.code)
    assert set(bench.finish()) == {"a", "b"}
    bench.core.shutdown()


def test_a_form_is_held_as_long_as_its_request_lives(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import qanat.structured.factory as factory_module

    monkeypatch.setattr(factory_module, "MAX_KEPT_FORMS", 1)
    first = constraint_of(choice=["first"])
    bench.factory.may_go.set()
    bench.add("r", first)
    bench.core.await_forms(WAIT_S)
    bench.core.step()
    bench.factory.form(constraint_of(choice=["second"]))
    assert bench.factory.known(first) is not None
    bench.finish()
    bench.factory.form(constraint_of(choice=["third"]))
    assert bench.factory.known(first) is None


def test_an_idle_core_makes_the_library_ready_once_it_knows_the_vocabulary() -> None:
    factory = FormFactory()
    preparation = FormPreparation(factory, "guidance", 8)
    preparation.warm_up()
    assert not factory.has_vocabulary
    asked = threading.Event()

    def read() -> object:
        asked.set()
        return VOCABULARY

    factory.use_vocabulary(read)  # type: ignore[arg-type]
    preparation.warm_up()
    assert asked.wait(WAIT_S)
    preparation.shutdown()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vocabulary_without_an_end_is_no_fault_of_the_library(backend: str) -> None:
    """Requests for a form are refused then; an idle engine logged a traceback, as no library takes such tokens."""
    endless = Vocabulary(VOCABULARY.tokens, VOCABULARY.added_ids, [])
    FormFactory(lambda: endless).warm_up(backend)
