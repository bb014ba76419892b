"""Whether a step is scheduled while the one before computes (--async-scheduling)."""

from __future__ import annotations

from qanat.config.engine_config import EngineConfig
from qanat.config.machine import MachineInfo
from qanat.config.model_config import ModelConfig
from qanat.core.decision import Decision

FLAG = "--async-scheduling"

SMALL_HIDDEN_SIZE = 256
"""Up to this width a step is so short that what lies between two steps counts: see docs/async-scheduling.md."""


def is_overlapped(
    wishes: EngineConfig, model: ModelConfig, machine: MachineInfo, num_computing: int, said: list[Decision]
) -> bool:
    """What was wished; else where it is measured to help.

    Args:
        wishes: what was asked for.
        model: its width tells how long a step is.
        machine: has the cores.
        num_computing: threads of all ranks and replicas of this host.
        said: gets the decision.
    """
    if wishes.async_scheduling is not None:
        return wishes.async_scheduling
    is_wanted = False
    if model.hidden_size > SMALL_HIDDEN_SIZE:
        why = "a step of this model takes far longer than what lies between two, and newcomers would wait one longer"
    elif num_computing >= machine.num_cores:
        why = f"the {num_computing} threads that compute leave no core to schedule on meanwhile"
    else:
        is_wanted = True
        why = "steps of so small a model are short, and a core is free to schedule the next one meanwhile"
    said.append(Decision(FLAG, None, is_wanted, why))
    return is_wanted
