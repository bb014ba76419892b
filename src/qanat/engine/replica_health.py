"""The health of several replicas as one."""

from __future__ import annotations

from collections.abc import Mapping

from qanat.engine.core_line import EngineHealth


def health_of_replicas(replicas: Mapping[int, EngineHealth]) -> EngineHealth:
    """The engine works while one replica does, and is dead when all are for good.

    Args:
        replicas: by rank, at least one.
    """
    if len(replicas) == 1:
        return next(iter(replicas.values()))
    every = list(replicas.values())
    return EngineHealth(
        is_alive=any(one.is_alive for one in every),
        num_pending=sum(one.num_pending for one in every),
        last_step_age_s=max(one.last_step_age_s for one in every),
        is_healthy=any(one.is_healthy for one in every),
        is_restarting=any(one.is_restarting for one in every) and not any(one.is_healthy for one in every),
        reason="; ".join(one.reason for one in every if one.reason),
        replicas=dict(replicas),
    )
