"""What handlers of requests are given: the parts of a running router."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from qanat.router.access_log import Record
from qanat.router.admission import Admission
from qanat.router.config import RouterConfig
from qanat.router.http.exchange import Downstream
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.metrics import RouterMetrics
from qanat.router.model import Call
from qanat.router.pool import Pool

RelayHandler = Callable[[Call, Downstream, Record], Awaitable[None]]
"""Answers one call that was admitted: it has room at some engine, its fields are decoded, and the key in its
headers is the one that the engine is to get. X-Request-Id is the record's.

Before the first await it chooses and leases (`pool.choose`, `pool.lease`); it tells `pool.failed` and
`pool.succeeded` how each attempt ended, fills in the record, and puts `record.headers()` into the head of the answer.
A QanatError that it raises before `downstream.start` becomes the answer, in OpenAI's form, with Retry-After.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """The parts of one router, made once.

    Attributes:
        pool: `choose(call, role, exclude) -> Choice(endpoint, reason)`, `lease(endpoint, call)`, `failed`, `succeeded`.
        admission: entered by the application before the relay is called.
        upstream: connections to engines.
        timeouts: for requests of clients.
        metrics: counted by the application, from the record of each request.
        config: every setting.
    """

    pool: Pool
    admission: Admission
    upstream: Upstream
    timeouts: Timeouts
    metrics: RouterMetrics
    config: RouterConfig
