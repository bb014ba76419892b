"""From a call to its handler: own routes, admin routes, and everything that engines answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from qanat.core.errors import NotFoundError, QanatError
from qanat.router.access_file import AccessLog
from qanat.router.access_log import Record
from qanat.router.admin import INSTANCE_PATHS, PATH, Admin
from qanat.router.calls import read_call
from qanat.router.errors import MethodError, ShuttingDownError
from qanat.router.health import Monitor
from qanat.router.http.exchange import Downstream, Handler, respond, respond_error
from qanat.router.http.request_reader import BodyTooLargeError, HeadCheck
from qanat.router.keys import Keys
from qanat.router.metrics import CONTENT_TYPE
from qanat.router.model import Call, Header
from qanat.router.routes import LABELLED, check_engine_route, is_models
from qanat.router.services import RelayHandler, Services
from qanat.router.status import RETRY_AFTER_S, health, is_serving, merged_models

LEFT = 499
"""In log and metrics: the client left before an answer began."""
MAX_ID_CHARS = 128
_RETRY: list[Header] = [(b"retry-after", b"%d" % RETRY_AFTER_S)]


class App:
    """The handler of every call.

    Attributes:
        routes: by path, answered without a key and without the queue; the relay adds those of its protocols.
        checks: of these, what stands for a key where one takes a long body.
    """

    def __init__(
        self,
        services: Services,
        monitor: Monitor,
        admin: Admin,
        relay: RelayHandler,
        access_log: AccessLog,
        is_draining: Callable[[], bool],
    ) -> None:
        self._services = services
        self._monitor = monitor
        self._admin = admin
        self._relay = relay
        self._access_log = access_log
        self._is_draining = is_draining
        self._keys = Keys(services.config)
        self._tells_client = services.config.options.router_header
        self._loop = asyncio.get_running_loop()
        self.routes: dict[str, Handler] = {
            "/health": self._health,
            "/healthcheck": self._health,
            "/ready": self._ready,
            "/live": self._live,
            "/metrics": self._metrics,
        }
        self.checks: dict[str, HeadCheck] = {}

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        """Answers one call."""
        path = call.path
        route = self.routes.get(path)
        if route is not None:
            try:
                await route(call, downstream)
            except QanatError as error:
                respond_error(downstream, error)
            return
        now_s = self._loop.time()
        record = Record(_request_id(call), now_s, tells_client=self._tells_client)
        try:
            await self._handler(path)(call, downstream, record)
        except QanatError as error:
            record.error = error.code
            if downstream.is_started:
                downstream.abort()
            else:
                is_passing = error.status == 503 and not error.retry_after_s
                respond_error(downstream, error, [*record.headers(), *(_RETRY if is_passing else ())])
        except asyncio.CancelledError:
            record.error = "client_left" if downstream.is_gone else "cut_off"
            raise
        except Exception:
            record.error = "router_error"
            raise
        finally:
            self._note(call, downstream, record, path, self._loop.time() - now_s)

    def check_head(self, call: Call) -> None:
        """Whether a request may be made, by its head; for `qanat.router.http.front.Front`.

        Raises:
            QanatError: it may not.
        """
        path = call.path
        if path in self.routes:
            check = self.checks.get(path)
            if check is None:
                raise BodyTooLargeError(f"{path} takes no such body")
            check(call)
        elif _is_admin(path):
            self._keys.check_admin(call)
        else:
            check_engine_route(call)
            self._keys.check_client(call)

    def _handler(self, path: str) -> Callable[[Call, Downstream, Record], Awaitable[None]]:
        if is_models(path):
            return self._models
        if _is_admin(path):
            return self._administered
        return self._relayed

    async def _relayed(self, call: Call, downstream: Downstream, record: Record) -> None:
        check_engine_route(call)
        self._keys.check_client(call)
        if self._is_draining():
            raise ShuttingDownError(
                "the router is stopping; try again elsewhere or later", retry_after_s=RETRY_AFTER_S
            )
        read_call(call)
        call.headers = self._keys.for_engine(call.headers)
        if self._keys.passes_on:
            self._monitor.models.offer(call)
        async with self._services.admission.enter(call):
            record.wait_s = self._loop.time() - record.begin_s
            await self._relay(call, downstream, record)

    async def _administered(self, call: Call, downstream: Downstream, record: Record) -> None:
        self._keys.check_admin(call)
        await self._admin(call, downstream)

    async def _models(self, call: Call, downstream: Downstream, record: Record) -> None:
        models = merged_models(self._services.pool, self._monitor)
        if not models or call.method not in ("GET", "HEAD"):
            await self._relayed(call, downstream, record)
            return
        self._keys.check_client(call)
        if call.path == "/v1/models":
            respond(
                downstream,
                200,
                msgspec.json.encode({"object": "list", "data": models}),
                headers=record.headers(),
            )
            return
        name = call.path.removeprefix("/v1/models/")
        card = next((card for card in models if card["id"] == name), None)
        if card is None:
            raise NotFoundError(f"no engine behind this router serves the model {name!r}", param="model")
        respond(downstream, 200, msgspec.json.encode(card), headers=record.headers())

    async def _health(self, call: Call, downstream: Downstream) -> None:
        _only_get(call)
        self._say_health(downstream, is_serving(self._services.pool))

    async def _ready(self, call: Call, downstream: Downstream) -> None:
        _only_get(call)
        self._say_health(downstream, is_serving(self._services.pool) and not self._is_draining())

    def _say_health(self, downstream: Downstream, is_good: bool) -> None:
        body = msgspec.json.encode(health(self._services.pool, is_draining=self._is_draining()))
        respond(downstream, 200 if is_good else 503, body, headers=() if is_good else _RETRY)

    async def _live(self, call: Call, downstream: Downstream) -> None:
        respond(downstream, 200, b'{"status":"ok"}')

    async def _metrics(self, call: Call, downstream: Downstream) -> None:
        respond(downstream, 200, self._services.metrics.text().encode(), CONTENT_TYPE)

    def _note(self, call: Call, downstream: Downstream, record: Record, path: str, duration_s: float) -> None:
        status = downstream.status if downstream.is_started else LEFT
        label = path if path in LABELLED else "other"
        self._services.metrics.count(record, label, status, duration_s)
        self._access_log.write(record, call, status, downstream.num_body_bytes, duration_s)


def _request_id(call: Call) -> str:
    """The client's own, if it is one that logs can bear, else the call's."""
    value = call.header(b"x-request-id")
    text = value.decode("latin-1").strip() if value else ""
    return text if text and len(text) <= MAX_ID_CHARS and text.isascii() and text.isprintable() else call.id


def _is_admin(path: str) -> bool:
    return path == PATH or path.startswith(PATH + "/") or path in INSTANCE_PATHS


def _only_get(call: Call) -> None:
    if call.method not in ("GET", "HEAD"):
        raise MethodError(f"{call.path} takes GET")
