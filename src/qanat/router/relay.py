"""From an admitted call to its answer: which road to an engine, and whether the answer is a stream to be watched."""

from __future__ import annotations

import socket

from qanat.router.access_log import Record
from qanat.router.disaggregated import metaserver
from qanat.router.disaggregated.metaserver import Metaserver
from qanat.router.disaggregated.pull import PullRoad
from qanat.router.disaggregated.push import PushRoad
from qanat.router.http.exchange import Downstream
from qanat.router.http.upstream import Upstream
from qanat.router.model import Call, Endpoint, Role
from qanat.router.pool import Pool
from qanat.router.relay_settings import Pairing, RelaySettings
from qanat.router.retry import RetryBudget
from qanat.router.road import Direct, Road
from qanat.router.stream_relay import StreamRelay
from qanat.router.whole_relay import WholeRelay

GENERATION_PATHS = frozenset(("/v1/chat/completions", "/v1/completions"))
"""Paths whose streams are continued when an engine dies, and which a disaggregated pair can serve."""


class Relay:
    """Answers calls that were admitted; see `qanat.router.services.RelayHandler`.

    Args:
        pool: of the engines.
        upstream: connections to them.
        settings: bounds.
    """

    def __init__(self, pool: Pool, upstream: Upstream, settings: RelaySettings) -> None:
        self.metaserver = Metaserver()
        self._pool = pool
        self._settings = settings
        self._budget = RetryBudget()
        self._direct = Direct(pool, upstream)
        self._decoder = Direct(pool, upstream, Role.DECODE)
        self._pair: Road
        if settings.pairing is Pairing.PUSH:
            self._pair = PushRoad(
                pool, upstream, self.metaserver, self._metaserver_url, settings.prefill_timeout_s
            )
        else:
            self._pair = PullRoad(pool, upstream, settings.prefill_timeout_s)

    async def __call__(self, call: Call, downstream: Downstream, record: Record) -> None:
        """Answers the call.

        Raises:
            QanatError: before anything was sent to the client: no engine could answer.
        """
        is_generation = call.method == "POST" and call.path in GENERATION_PATHS
        road = self._road(is_generation)
        if is_generation and call.is_stream and call.fields is not None:
            relay = StreamRelay(self._pool, self._settings, self._budget, road, call, downstream, record)
            await relay.run()
        else:
            await WholeRelay(self._pool, self._settings, self._budget, road, record).run(call, downstream)

    def _road(self, is_generation: bool) -> Road:
        """Whole engines where there are any; a decoder can answer what is no generation."""
        pool = self._pool
        if not pool.is_disaggregated or pool.of_role(Role.ANY):
            return self._direct
        return self._pair if is_generation else self._decoder

    def _metaserver_url(self, decoder: Endpoint) -> str:
        return self._settings.metaserver_url


def metaserver_url(base: str) -> str:
    """The URL that decoders are given, from the router's own as they reach it."""
    return base.rstrip("/") + metaserver.PATH


def own_url(endpoint: Endpoint, port: int) -> str:
    """This machine's address on the way to an endpoint, as a URL with this port.

    Raises:
        OSError: there is no way to it.
    """
    family, _, _, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # of a datagram socket: nothing is sent
        host = str(probe.getsockname()[0])
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
