"""From an admitted call to its answer: which road to an engine, and whether the answer is a stream to be watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from qanat.core.errors import ConfigError, InvalidRequestError
from qanat.router.access_log import Record
from qanat.router.disaggregated.metaserver import PATH, Metaserver
from qanat.router.disaggregated.own_address import OwnAddress
from qanat.router.disaggregated.pull import PullRoad
from qanat.router.disaggregated.push import PushRoad
from qanat.router.http.exchange import Downstream, Handler
from qanat.router.http.request_reader import HeadCheck
from qanat.router.http.upstream import Upstream
from qanat.router.model import Call, Endpoint, Role
from qanat.router.pool import Pool
from qanat.router.relay_settings import Pairing, RelaySettings
from qanat.router.retry import RetryBudget
from qanat.router.road import Direct, Road
from qanat.router.routes import is_repeatable
from qanat.router.services import Services
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
        metaserver_url: how an endpoint reaches this router's metaserver; needed by pairs that push.

    Attributes:
        metaserver: where decoders of such pairs ask.
        routes: by path, what the application answers without a key and without the queue.
        checks: of these, by path, what is asked before a long body is read.
    """

    def __init__(
        self,
        pool: Pool,
        upstream: Upstream,
        settings: RelaySettings,
        metaserver_url: Callable[[Endpoint], Awaitable[str]] | None = None,
    ) -> None:
        self.metaserver = Metaserver()
        is_pushing = settings.pairing is Pairing.PUSH
        self.routes: dict[str, Handler] = {PATH: self.metaserver} if is_pushing else {}
        self.checks: dict[str, HeadCheck] = {PATH: self.metaserver.check} if is_pushing else {}
        self._pool = pool
        self._settings = settings
        self._budget = RetryBudget()
        self._direct = Direct(pool, upstream)
        self._decoder = Direct(pool, upstream, Role.DECODE)
        self._pair: Road
        if is_pushing:
            if metaserver_url is None:
                raise ValueError("pairs that push need a metaserver_url")
            self._pair = PushRoad(pool, upstream, self.metaserver, metaserver_url, settings.prefill_timeout_s)
        else:
            self._pair = PullRoad(pool, upstream, settings.prefill_timeout_s)

    async def __call__(self, call: Call, downstream: Downstream, record: Record) -> None:
        """Answers the call.

        Raises:
            QanatError: before anything was sent to the client: no engine could answer.
        """
        if call.fields is None and self._pool.is_disaggregated:
            _check_unread(call)
        is_generation = call.method == "POST" and call.path in GENERATION_PATHS
        road = self._road(is_generation)
        if is_generation and call.is_stream and call.fields is not None:
            relay = StreamRelay(self._pool, self._settings, self._budget, road, call, downstream, record)
            await relay.run()
        else:
            relayed = WholeRelay(
                self._pool, self._settings, self._budget, road, record, is_repeatable=is_repeatable(call)
            )
            await relayed.run(call, downstream)

    def _road(self, is_generation: bool) -> Road:
        """Whole engines where there are any, else pairs; a decoder can answer what is no generation."""
        pool = self._pool
        if not pool.is_disaggregated:
            return self._direct
        roles = pool.roles_in_service()
        if Role.ANY in roles or (pool.of_role(Role.ANY) and not {Role.PREFILL, Role.DECODE} <= roles):
            return self._direct
        return self._pair if is_generation else self._decoder


def _check_unread(call: Call) -> None:
    """In front of pairs nobody may say where a cache goes, not even in a body that the router cannot read.

    Raises:
        InvalidRequestError: the body may be JSON to an engine.
    """
    if call.body and not (call.header(b"content-type") or b"").startswith(b"multipart/"):
        raise InvalidRequestError(
            "the body must be a JSON object in UTF-8, of fewer values if it is one; send token ids as text"
        )


def relay_of(services: Services) -> Relay:
    """The relay of a router with these settings.

    Raises:
        ConfigError: pairs push, and no address is known that decoders could ask at.
    """
    options = services.config.options
    settings = RelaySettings(
        services.timeouts,
        max_retries=options.max_retries,
        is_continuing=options.continue_streams,
        prefill_timeout_s=options.first_byte_timeout_s,
        pairing=Pairing.PUSH if options.connector == "push" else Pairing.PULL,
    )
    base = options.metaserver_url
    if settings.pairing is Pairing.PUSH and base is None and options.port == 0:
        raise ConfigError(
            "--connector push with --port 0: decode engines need an address that is known before; set --port or "
            "--metaserver-url.",
            param="--metaserver-url",
        )

    own = OwnAddress(options.port, is_tls=options.ssl_certfile is not None)
    services.pool.on_removed(own.forget)

    async def url(endpoint: Endpoint) -> str:
        root = base or await own.url(endpoint)
        return root.rstrip("/").removesuffix(PATH) + PATH

    return Relay(services.pool, services.upstream, settings, url)
