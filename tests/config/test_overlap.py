from __future__ import annotations

import dataclasses

import pytest

from qanat.config.engine_config import EngineConfig
from qanat.config.machine import MachineInfo
from qanat.config.overlap import is_overlapped
from qanat.core.decision import Decision
from tests.worker.tiny_model import CONFIGS

MACHINE = MachineInfo("cpu (x86_64)", "", 4, (), 2**34, 2**33, "free memory of the machine")
SMALL = CONFIGS["qwen3_5"]
LARGE = dataclasses.replace(SMALL, hidden_size=1024)


@pytest.mark.parametrize(
    ("model", "num_computing", "is_on", "part"),
    [
        (SMALL, 1, True, "a core is free"),
        (SMALL, 4, False, "the 4 threads that compute leave no core"),
        (LARGE, 1, False, "far longer than what lies between two"),
    ],
)
def test_by_default_where_it_helps_and_the_reason_is_told(
    model: object, num_computing: int, is_on: bool, part: str
) -> None:
    said: list[Decision] = []
    assert is_overlapped(EngineConfig(), model, MACHINE, num_computing, said) is is_on  # type: ignore[arg-type]
    (decision,) = said
    assert (decision.field, decision.wanted, decision.got) == ("--async-scheduling", None, is_on)
    assert part in decision.why


@pytest.mark.parametrize("wish", [True, False])
def test_a_wish_holds_in_silence(wish: bool) -> None:
    said: list[Decision] = []
    assert is_overlapped(EngineConfig(async_scheduling=wish), LARGE, MACHINE, 4, said) is wish
    assert said == []
