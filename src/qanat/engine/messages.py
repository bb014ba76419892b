"""Messages between the front end and the engine core's process, as msgpack over a Unix socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Constraint
from qanat.core.decision import Decision
from qanat.core.memory_plan import MemoryPlan
from qanat.core.outputs import RequestOutput
from qanat.core.profile import ProfileReport
from qanat.core.request import Request
from qanat.scheduler.stats import SchedulerStats
from qanat.structured.vocabulary import Vocabulary

TO_CORE_SOCKET = "to-core"
"""File name of the socket that carries `ToCore`."""
FROM_CORE_SOCKET = "from-core"
"""File name of the socket that carries `FromCore`."""
SHARED_SOCKET = "to-core-too"
"""File name of the socket, bound by the core, that carries `ToCore` of front ends beside the first."""
LENGTH_BYTES = 8
"""Size of the little-endian length that precedes the configuration on the core's standard input."""


def front_end_socket(number: int) -> str:
    """File name of the socket, bound by this front end, that carries `FromCore` to it."""
    return f"front-{number}"


class AddRequests(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: admit the choices of one call.

    Attributes:
        requests: one per choice, without their form.
        constraint: the form of each of them, once, as its grammar may be large.
        front_end: who is told about them.
    """

    requests: list[Request]
    constraint: Constraint | None = None
    front_end: int = 0

    @classmethod
    def of(cls, requests: Sequence[Request]) -> AddRequests:
        """The message for the choices of one call, at least one."""
        bare = [msgspec.structs.replace(request, constraint=None) for request in requests]
        return cls(bare, requests[0].constraint)

    def read(self, shared: Callable[[Constraint], Constraint]) -> list[Request]:
        """The requests with their form.

        Args:
            shared: returns one that equals what it is given and is there already, if there is one.
        """
        if self.constraint is not None:
            constraint = shared(self.constraint)
            for request in self.requests:
                request.constraint = constraint
        return self.requests


class AbortRequest(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: end this request now."""

    request_id: str


class UseVocabulary(msgspec.Struct, tag=True, frozen=True):
    """Front end to core, before any request with a form: the tokens, packed, as they are rarely needed."""

    packed: bytes

    def read(self) -> Vocabulary:
        """Unpacks it."""
        return Vocabulary.unpacked(self.packed)


class StartProfile(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: record steps from now on; this front end is answered with `call_id`."""

    call_id: int
    front_end: int = 0


class StopProfile(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: end the profile; it is answered with `call_id` once its files are written."""

    call_id: int
    front_end: int = 0


class ResetPrefixes(msgspec.Struct, tag=True, frozen=True):
    """Front end to core: forget all cached prefixes; it is answered with `call_id`."""

    call_id: int
    front_end: int = 0


class OpenFrontEnd(msgspec.Struct, tag=True, frozen=True):
    """First front end to core: another one, which binds `front_end_socket`; it is told `Ready` there.

    Attributes:
        number: from 1; never one that another front end of this core has had.
    """

    number: int


class CloseFrontEnd(msgspec.Struct, tag=True, frozen=True):
    """First front end to core: this one is gone; its requests end, and what else comes from it is dropped."""

    number: int


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


class CallReply(msgspec.Struct, tag=True, frozen=True):
    """Core to front end: answer to a question about profiles, or to the wish to forget prefixes.

    Attributes:
        call_id: of the question.
        report: of a profile that was ended.
        error_code: of what went wrong; empty if nothing did.
        error_message: likewise.
    """

    call_id: int
    report: ProfileReport | None = None
    error_code: str = ""
    error_message: str = ""


ToCore = (
    AddRequests
    | AbortRequest
    | UseVocabulary
    | StartProfile
    | StopProfile
    | ResetPrefixes
    | OpenFrontEnd
    | CloseFrontEnd
)
FromCore = Ready | StartFailed | StepDone | CallReply
