"""Messages between the front end and the engine core's process, as msgpack over a Unix socket."""

from __future__ import annotations

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.core.memory_plan import MemoryPlan
from qanat.core.outputs import RequestOutput
from qanat.core.request import Request
from qanat.scheduler.stats import SchedulerStats

TO_CORE_SOCKET = "to-core"
"""File name of the socket that carries `ToCore`."""
FROM_CORE_SOCKET = "from-core"
"""File name of the socket that carries `FromCore`."""
LENGTH_BYTES = 8
"""Size of the little-endian length that precedes the configuration on the core's standard input."""


class AddRequest(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: admit this request."""

    request: Request


class AbortRequest(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: end this request now."""

    request_id: str


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Core to front end: the model is loaded and requests are served.

    Attributes:
        config: with limits that nobody set fitted to the memory.
        memory_plan: what was allocated.
        decisions: on the limits that were lowered.
        op_table: provider of each kernel, one line per op.
    """

    config: ResolvedConfig
    memory_plan: MemoryPlan
    decisions: list[Decision]
    op_table: list[str]


class StartFailed(msgspec.Struct, tag=True, frozen=True):
    """Core to front end: it cannot start; code and message of the error."""

    code: str
    message: str


class StepDone(msgspec.Struct, tag=True, frozen=True):
    """Core to front end, after every step: news of requests, and the scheduler's figures."""

    outputs: list[RequestOutput]
    stats: SchedulerStats
    num_steps: int


ToCore = AddRequest | AbortRequest
FromCore = Ready | StartFailed | StepDone
