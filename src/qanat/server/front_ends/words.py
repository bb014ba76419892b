"""What the parent and a front end say to each other, as msgpack over a pair of Unix sockets."""

from __future__ import annotations

import msgspec

from qanat.config.prepare import Prepared
from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineStats
from qanat.server.accounts import Sizes
from qanat.server.caller import Caller
from qanat.server.recent import RequestRecord
from qanat.server.usage import UsageReport


class ReplicaUp(msgspec.Struct, tag=True, frozen=True):
    """Parent to front end: a core serves, and knows or will know of this front end.

    Attributes:
        rank: of the replica.
        folder: of the core's sockets.
        pid: of the core's process.
        start_s: seconds that its start took.
        num_restarts: of this replica so far.
    """

    rank: int
    folder: str
    pid: int | None
    start_s: float
    num_restarts: int


class ReplicaDown(msgspec.Struct, tag=True, frozen=True):
    """Parent to front end: a core has died, or could not be started again.

    Attributes:
        rank: of the replica.
        reason: as a sentence.
        retry_in_s: seconds until the next start; None if there will be none.
        num_restarts: of this replica so far, the next one included.
    """

    rank: int
    reason: str
    retry_in_s: float | None
    num_restarts: int


class Setup(msgspec.Struct, frozen=True):
    """Parent to front end, on its standard input: all that it needs to know.

    Attributes:
        number: its own, from 1; never used again.
        prepared: every setting.
        replicas: what is known of them now.
    """

    number: int
    prepared: Prepared
    replicas: list[ReplicaUp | ReplicaDown]


class Serving(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: it answers requests."""


class StatsQuestion(msgspec.Struct, tag=True, frozen=True):
    """To all others, through the parent: what have you counted?

    Attributes:
        own: the asker's, which the parent keeps for the time after its death.
    """

    own: EngineStats | None = None


class StatsAnswer(msgspec.Struct, tag=True, frozen=True):
    """Counts of one front end.

    Attributes:
        stats: the counts.
        is_current: they are those of now; otherwise what it said last, as it has died or does not answer.
    """

    stats: EngineStats
    is_current: bool = True


class HealthQuestion(msgspec.Struct, tag=True, frozen=True):
    """To all others, through the parent: does your work make progress?"""


class HealthAnswer(msgspec.Struct, tag=True, frozen=True):
    """Health as one front end sees it."""

    health: EngineHealth


class AbortQuestion(msgspec.Struct, tag=True, frozen=True):
    """To all others, through the parent: end what runs under this id."""

    request_id: str


class AbortAnswer(msgspec.Struct, tag=True, frozen=True):
    """How many prompts were running under it."""

    num_aborted: int


class RequestsQuestion(msgspec.Struct, tag=True, frozen=True):
    """To all others, through the parent: what did requests take lately?"""


class RequestsAnswer(msgspec.Struct, tag=True, frozen=True):
    """That."""

    requests: list[RequestRecord]


class Gathered(msgspec.Struct, tag=True, frozen=True):
    """Parent to front end: what the others answered.

    Attributes:
        answers: of those that answered in time, or of what they said last.
        num_silent: of the others, those that did not, and so have done nothing about the question yet.
    """

    answers: list[StatsAnswer | HealthAnswer | AbortAnswer | RequestsAnswer]
    num_silent: int = 0


class OpenLease(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: let this request in. Asked where the caller has bounds, else told.

    Attributes:
        lease: number of the request at this front end.
        caller: whose it is.
        num_sequences: see `qanat.server.accounts.Account.lease`.
    """

    lease: int
    caller: Caller
    num_sequences: int


class BeginLease(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: its prompts are known; see `qanat.server.accounts.Lease.begin`."""

    lease: int
    sizes: Sizes


class UseLease(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: what it used since it was last told; see `qanat.server.accounts.Lease.use`."""

    lease: int
    num_new: int
    num_cached: int
    is_computed: bool


class EndLease(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: it has ended, with this error if with any.

    Attributes:
        lease: number of the request.
        code: of the error; empty if there was none.
        status: its HTTP status.
        has_cost: see `QanatError`.
    """

    lease: int
    code: str = ""
    status: int = 0
    has_cost: bool = False


class Verdict(msgspec.Struct, tag=True, frozen=True):
    """Parent to front end: whether the request may go on.

    Attributes:
        headers: what is left of the caller's bounds.
        obstacle: which bound is reached; empty if the request may go on.
        retry_after_s: seconds until it may.
    """

    headers: list[tuple[bytes, bytes]]
    obstacle: str = ""
    retry_after_s: int = 0


class Refusal(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: a request was answered with the error that has this code."""

    caller: Caller
    code: str


class UsageQuestion(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: what may this caller see of the counts?"""

    caller: Caller


class UsageAnswer(msgspec.Struct, tag=True, frozen=True):
    """That."""

    report: UsageReport


class KeyMetricsQuestion(msgspec.Struct, tag=True, frozen=True):
    """Front end to parent: the counts of all named keys, in Prometheus' text format?"""


class KeyMetricsAnswer(msgspec.Struct, tag=True, frozen=True):
    """That."""

    text: bytes


class Silence(msgspec.Struct, tag=True, frozen=True):
    """Answer of who cannot say anything yet."""


Question = StatsQuestion | HealthQuestion | AbortQuestion | RequestsQuestion
"""What a front end asks all others."""
Answer = StatsAnswer | HealthAnswer | AbortAnswer | RequestsAnswer
Word = (
    ReplicaUp
    | ReplicaDown
    | Serving
    | Question
    | Answer
    | Gathered
    | OpenLease
    | BeginLease
    | UseLease
    | EndLease
    | Verdict
    | Refusal
    | UsageQuestion
    | UsageAnswer
    | KeyMetricsQuestion
    | KeyMetricsAnswer
    | Silence
)
