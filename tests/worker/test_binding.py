"""--cpu-binding as the system sees it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from pathlib import Path

import pytest

from qanat.core import affinity
from qanat.kernels.native import module
from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import REFERENCE
from qanat.worker.worker import Worker
from tests.worker.tiny_model import tiny_config

ALLOWED = sorted(os.sched_getaffinity(0))


def own_threads() -> dict[int, str]:
    """Processors that each thread of this process may run on, as the system writes them."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            status = (task / "status").read_text()
            found[int(task.name)] = re.findall(r"Cpus_allowed_list:\s*(\S+)", status)[0]
    return found


@pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two processors")
def test_each_computing_thread_is_on_its_processor_and_others_may_go_anywhere() -> None:
    if not module.is_built():
        pytest.skip(module.why_not())
    first, second = ALLOWED[:2]
    config = dataclasses.replace(tiny_config(), num_threads=2, cpu_binding=(first, second))
    seen: dict[str, object] = {}

    def load() -> None:
        before = own_threads()
        Worker(config).load()
        seen["own"] = os.sched_getaffinity(0)
        seen["new"] = [places for task, places in own_threads().items() if task not in before]
        affinity.unbind_thread()
        seen["unbound"] = os.sched_getaffinity(0)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    choose_providers(1, REFERENCE)
    assert seen["own"] == {first}
    assert str(second) in seen["new"]  # type: ignore[operator]
    assert seen["unbound"] == set(ALLOWED)


def test_a_thread_is_kept_off_processors_only_if_there_are_others() -> None:
    seen = []

    def move() -> None:
        seen.append((affinity.keep_off(ALLOWED), os.sched_getaffinity(0)))
        seen.append((affinity.keep_off(ALLOWED[1:]), os.sched_getaffinity(0)))
        seen.append((affinity.bind_thread([10**5]), os.sched_getaffinity(0)))
        seen.append((affinity.bind_thread([]), os.sched_getaffinity(0)))

    thread = threading.Thread(target=move)
    thread.start()
    thread.join()
    first = set(ALLOWED[:1])
    assert seen[0] == (False, set(ALLOWED))
    assert seen[1] == (len(ALLOWED) > 1, first)
    assert seen[2:] == [(False, first), (False, first)]
