"""A call passed to one engine as it is, and the answer back as it comes."""

from __future__ import annotations

from qanat.router.access_log import Record
from qanat.router.http.errors import UpstreamError
from qanat.router.http.exchange import Downstream
from qanat.router.model import Call
from qanat.router.services import Services


class Forward:
    """The plain relay: one attempt; what goes wrong is told."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, call: Call, downstream: Downstream, record: Record) -> None:
        """Answers one call; see RelayHandler."""
        pool = self._services.pool
        endpoint, reason = pool.choose(call)
        record.chosen(endpoint.name, reason)
        with pool.lease(endpoint, call) as lease:
            try:
                async with self._services.upstream.request(
                    endpoint, call.method, call.target, call.headers, call.body, self._services.timeouts
                ) as answer:
                    downstream.start(answer.status, [*answer.headers, *record.headers()])

                    def receive(data: bytes) -> None:
                        lease.tokens()
                        downstream.write(data)

                    await answer.pump(receive, downstream)
                    downstream.end()
            except UpstreamError as error:
                pool.failed(endpoint, error)
                raise
        pool.succeeded(endpoint)
