from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from qanat.config.graphs import GraphSettings
from qanat.core.graph_counts import GraphCounter, total_graph_counts
from qanat.kernels import ops
from qanat.kernels.native import arena
from qanat.models.dummy import load_dummy
from qanat.worker.graphs.runner import NO_GRAPHS, PROFILED, TOO_LARGE
from qanat.worker.heap import heap_bytes
from tests.worker.driver import Driver, random_prompt
from tests.worker.tiny_model import CONFIGS

FULL = GraphSettings("FULL_DECODE_ONLY", (1, 2, 4))


def driver_of(graphs: GraphSettings | None = FULL, family: str = "qwen3_5_moe", **limits: Any) -> Driver:
    return Driver(model=load_dummy(CONFIGS[family], torch.float32, seed=3), graphs=graphs, **limits)


def decoding(driver: Driver, num_requests: int) -> Driver:
    """The driver with so many requests that have an output."""
    for request in range(num_requests):
        driver.add(f"r{request}", random_prompt(3 + request, request))
    driver.step_all()
    return driver


def test_a_graph_is_captured_once_and_replayed_for_every_batch_that_it_fits() -> None:
    driver = decoding(driver_of(), 3)
    assert (driver.uses[-1].kind, driver.uses[-1].is_decode) == ("eager", False)
    driver.step_all()
    assert driver.uses[-1].kind == "full" and driver.uses[-1].capture_s > 0
    for names in (["r0", "r1", "r2"], ["r2", "r0", "r1"]):
        driver.step({name: 1 for name in names})
        assert driver.uses[-1].kind == "full" and driver.uses[-1].capture_s == 0
    driver.step({"r1": 1})
    assert driver.uses[-1].capture_s > 0  # another size


def test_larger_batches_run_eagerly_and_say_why() -> None:
    driver = decoding(driver_of(), 5)
    driver.step_all()
    assert (driver.uses[-1].kind, driver.uses[-1].reason) == ("eager", TOO_LARGE)
    driver = decoding(driver_of(None), 1)
    driver.step_all()
    assert (driver.uses[-1].kind, driver.uses[-1].reason) == ("eager", NO_GRAPHS)


def test_profiled_steps_run_eagerly() -> None:
    driver = decoding(driver_of(), 1)
    driver.runner.run = driver.runner.run_profiled  # type: ignore[method-assign]
    driver.step_all()
    assert (driver.uses[-1].kind, driver.uses[-1].reason) == ("eager", PROFILED)


def test_outputs_that_the_arena_has_no_room_for_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_STEP_ARENA", [arena.make_arena(64)])
    driver = decoding(driver_of(None), 1)
    driver.step_all()
    assert all(use.num_arena_misses > 0 for use in driver.uses)
    assert sum(use.num_arena_misses for use in driver.uses) <= arena.num_missed()
    counter = GraphCounter()
    for use in driver.uses:
        counter.add(use)
    total = total_graph_counts([counter.counts(), counter.counts()])
    assert total.num_arena_misses == 2 * sum(use.num_arena_misses for use in driver.uses)


def test_scores_of_more_rows_than_the_plan_allows_are_computed_afterwards() -> None:
    in_parts, at_once = (decoding(driver_of(logits_chunk_rows=rows), 4) for rows in (2, 64))
    for _ in range(5):
        assert in_parts.step_all() == at_once.step_all()
    assert in_parts.uses[-1].kind == at_once.uses[-1].kind == "full"


def test_a_replay_calls_no_python_and_allocates_nothing() -> None:
    driver = decoding(driver_of(), 4)
    driver.step_all()
    passes = driver.runner._passes
    (captured,) = passes._captured.values()
    assert captured is not None and captured.graph.host_nodes == ()
    arena = passes._maker._arena  # type: ignore[union-attr]
    taken = (arena.num_taken, arena.num_missed)
    events: list[tuple[str, str]] = []

    def watch() -> None:
        sys.setprofile(lambda frame, event, arg: events.append((event, getattr(arg, "__name__", ""))))
        captured.graph.replay()
        sys.setprofile(None)

    captured.graph.replay()
    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert [event for event in events if event[1] != "setprofile" and event[0] == "call"] == []
    assert {name for event, name in events if event == "c_call"} <= {"replay", "setprofile"}
    assert any(growth_of(captured.graph.replay) <= 0 for _ in range(20)), (
        "other threads allocate now and then"
    )
    assert (arena.num_taken, arena.num_missed) == taken


def growth_of(act: Callable[[], object]) -> int:
    """Bytes by which the heap has grown when something was done 20 times."""
    before = heap_bytes()
    for _ in range(20):
        act()
    return heap_bytes() - before


def test_a_finished_request_is_let_go() -> None:
    driver = decoding(driver_of(), 3)
    driver.step_all()
    state = weakref.ref(driver.runner._table[driver.running["r2"].new_row.row])
    driver.release("r2")
    driver.step_all()
    assert state() is None


def test_what_no_graph_can_hold_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that looks at values makes capturing fail, before anybody's state was touched."""
    plain, curious = decoding(driver_of(None), 2), decoding(driver_of(), 2)
    store = ops.qk_norm_rotary_store._function
    ops.qk_norm_rotary_store.wrap(lambda function: lambda q, *rest: store(q * float(q.max() > -1e9), *rest))
    try:
        for _ in range(3):
            assert plain.step_all() == curious.step_all()
    finally:
        ops.qk_norm_rotary_store.unwrap()
    assert (curious.uses[-1].kind, curious.uses[-1].reason) == ("eager", "not_captured")


def test_ops_that_are_not_native_are_called_between_the_tapes() -> None:
    plain, mixed = decoding(driver_of(None), 3), decoding(driver_of(), 3)
    ops.paged_attention.select("reference")
    ops.moe_route.select("reference")
    for _ in range(4):
        assert plain.step_all() == mixed.step_all()
    (captured,) = mixed.runner._passes._captured.values()
    assert captured is not None
    assert {"paged_attention", "moe_route"} == set(captured.graph.host_nodes)


def test_torch_operators_are_called_between_the_tapes() -> None:
    plain, mixed = decoding(driver_of(None), 3), decoding(driver_of(), 3)
    store = ops.qk_norm_rotary_store._function
    ops.qk_norm_rotary_store.wrap(lambda function: lambda q, *rest: store(q.clone().mul_(1.0), *rest))
    try:
        for _ in range(4):
            assert plain.step_all() == mixed.step_all()
        (captured,) = mixed.runner._passes._captured.values()
        assert captured is not None and "aten::mul_" in captured.graph.host_nodes
    finally:
        ops.qk_norm_rotary_store.unwrap()
