"""What --cpu-binding means: which processors the threads of which process are pinned to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qanat.config.engine_config import EngineConfig
from qanat.config.machine import MachineInfo
from qanat.config.processors import number_ranges
from qanat.core.affinity import can_bind
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

FLAG = "--cpu-binding"
ASCEND_KEY = "enable_cpu_binding"
"""Key of --additional-config that asks vLLM-Ascend for the same."""


def bound_processors(
    wishes: EngineConfig, machine: MachineInfo, num_threads: int, num_processes: int, said: list[Decision]
) -> tuple[int, ...]:
    """Processors for all computing threads of this host, those of one process behind each other; empty for none.

    Args:
        wishes: what was asked for.
        machine: has the processors, in the order in which they are taken.
        num_threads: of each process that computes.
        num_processes: ranks of all replicas of this host.
        said: gets the decisions.

    Raises:
        ConfigError: a key that is neither true nor false.
    """
    if not _is_wanted(wishes, said):
        return ()
    order, num_wanted = machine.binding_order, num_threads * num_processes
    why = ""
    if not can_bind():
        why = "this system does not let a thread choose its processor"
    elif num_wanted > len(order):
        why = f"{num_wanted} threads want as many processors; this process may use {len(order)}: lower --num-threads"
    if why:
        said.append(Decision(FLAG, True, False, why))
        return ()
    chosen, rest = order[:num_wanted], order[num_wanted:]
    others = (
        f"the server's own process has {number_ranges(rest)}" if rest else "no other is left for the server"
    )
    why = f"each computing thread has a processor of its own, cores before their second threads; {others}"
    said.append(Decision(FLAG, True, f"processors {number_ranges(chosen)}", why))
    return chosen


def without_binding(additional_config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The rest of --additional-config."""
    return {key: value for key, value in (additional_config or {}).items() if key != ASCEND_KEY}


def _is_wanted(wishes: EngineConfig, said: list[Decision]) -> bool:
    """Asked for by the flag, or by vLLM-Ascend's key if the flag says nothing."""
    given = (wishes.additional_config or {}).get(ASCEND_KEY)
    key = f"--additional-config.{ASCEND_KEY}"
    if given is not None and not isinstance(given, bool):
        raise ConfigError(f"{key}: {given!r} is neither true nor false.", param="--additional-config")
    if wishes.cpu_binding is not None:
        if given is not None and given != wishes.cpu_binding:
            said.append(Decision(key, given, "ignored", f"{FLAG} goes before it"))
        return wishes.cpu_binding
    if given is not None:
        said.append(Decision(key, given, FLAG if given else "no binding", "it is this flag here"))
    return bool(given)
