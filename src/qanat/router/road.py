"""How a request reaches an engine that answers it: directly, or through a disaggregated pair."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from qanat.router.access_log import Record
from qanat.router.body_edit import edited, withdrawn
from qanat.router.http.exchange import Flow
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.lease import Lease
from qanat.router.lost_guard import LostGuard
from qanat.router.model import Call, Endpoint, Header, Role
from qanat.router.pool import Pool

Changes = Callable[[Endpoint], Mapping[str, Any]]
"""What the relay changes in the body for an engine of this kind."""


class AnswerLike(Protocol):
    """See `qanat.router.http.upstream.Answer`."""

    status: int
    headers: list[Header]

    def header(self, name: bytes) -> bytes | None:
        """See Answer."""

    def set_idle_timeout(self, idle_s: float | None) -> None:
        """See Answer."""

    async def pump(self, receive: Callable[[bytes], None], flow: Flow | None = None) -> None:
        """See Answer."""

    def body(self) -> AsyncIterator[bytes]:
        """See Answer."""

    async def read(self, max_bytes: int = 64 << 20) -> bytes:
        """See Answer."""


@dataclass(slots=True)
class Opened:
    """An engine has begun to answer.

    Attributes:
        answer: status, headers, and the body to come.
        endpoint: who answers.
        lease: counts what comes.
    """

    answer: AnswerLike
    endpoint: Endpoint
    lease: Lease


class Road(Protocol):
    """A way to an answer; one try each time it is taken."""

    def open(
        self,
        call: Call,
        changes: Changes,
        exclude: Container[Endpoint],
        record: Record,
        timeouts: Timeouts,
    ) -> AbstractAsyncContextManager[Opened]:
        """Chooses an engine, or a pair, and asks it; leaving the context ends what has not ended.

        Raises:
            NoEndpointError: on entering: nobody is there to be asked.
            UpstreamError: on entering: the engine, which it names, did not answer. Inside: it was given up.
        """
        ...


class Direct:
    """To one engine that does it all.

    Args:
        pool: of the engines.
        upstream: connections.
        role: of the engine; a decoder can compute a prompt itself too.
    """

    def __init__(self, pool: Pool, upstream: Upstream, role: Role = Role.ANY) -> None:
        self._pool = pool
        self._upstream = upstream
        self._role = role

    @asynccontextmanager
    async def open(
        self,
        call: Call,
        changes: Changes,
        exclude: Container[Endpoint],
        record: Record,
        timeouts: Timeouts,
    ) -> AsyncIterator[Opened]:
        """See Road."""
        endpoint, reason = self._pool.choose(call, self._role, exclude)
        record.chosen(endpoint.name, reason)
        body = call.body
        if call.fields is not None:
            body = edited(body, call.fields, {**without_params(call), **changes(endpoint)})
        with self._pool.lease(endpoint, call) as lease, LostGuard(lease):
            async with self._upstream.request(
                endpoint, call.method, call.target, request_headers(call, record), body, timeouts
            ) as answer:
                yield Opened(answer, endpoint, lease)


def without_params(call: Call) -> dict[str, Any]:
    """The change that takes a client's own kv_transfer_params out: they would move caches to wherever it says."""
    return {"kv_transfer_params": withdrawn()} if "kv_transfer_params" in (call.fields or {}) else {}


def request_headers(call: Call, record: Record, request_id: str = "") -> Sequence[Header]:
    """The client's headers, with the request's id; without compression where events are read on their way."""
    left_out = (b"x-request-id", b"accept-encoding") if call.is_stream else (b"x-request-id",)
    headers = [header for header in call.headers if header[0] not in left_out]
    value = request_id or record.request_id
    headers.append((b"x-request-id", value.encode("latin-1", "replace")))
    return headers


def answer_headers(headers: Sequence[Header], record: Record, *, has_length: bool) -> list[Header]:
    """An engine's headers with the router's own, which replace those of the same name."""
    own = record.headers()
    names = {name for name, _ in own}
    if not has_length:
        names.add(b"content-length")
    return [*(header for header in headers if header[0] not in names), *own]
