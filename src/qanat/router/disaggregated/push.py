"""Pairs whose prefiller pushes the cache layer by layer: the decoder is asked first, and calls for the push.

router -- 1 request, URL of the metaserver --> decoder
router <-- 2 /v1/metaserver: where to push --- decoder
router -- 3 prompt, where to push ----------> prefiller == 4 cache, layer by layer ==> decoder
router <-- 5 the answer ---------------------- decoder
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from typing import Any

from qanat.core.errors import QanatError
from qanat.router.access_log import Record
from qanat.router.body_edit import edited
from qanat.router.disaggregated.metaserver import Metaserver, new_token, with_token
from qanat.router.disaggregated.prefill_leg import ask_prefiller, prefill_changes, why_whole
from qanat.router.disaggregated.pull import attempt_id
from qanat.router.http.errors import UpstreamBroken, UpstreamError, UpstreamTimeout
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.lost_guard import Interruptible, LostGuard
from qanat.router.model import Call, Endpoint, Role
from qanat.router.pool import Pool
from qanat.router.road import Changes, Direct, Opened, request_headers


class PushRoad:
    """See Road.

    Args:
        pool: has prefill and decode endpoints.
        upstream: connections.
        metaserver: where decoders ask.
        metaserver_url: how a decoder reaches it.
        prefill_timeout_s: for the prefill leg.
    """

    def __init__(
        self,
        pool: Pool,
        upstream: Upstream,
        metaserver: Metaserver,
        metaserver_url: Callable[[Endpoint], Awaitable[str]],
        prefill_timeout_s: float,
    ) -> None:
        self._pool = pool
        self._upstream = upstream
        self._metaserver = metaserver
        self._url = metaserver_url
        self._timeout_s = prefill_timeout_s
        self._decoder_alone = Direct(pool, upstream, Role.DECODE)

    @asynccontextmanager
    async def open(
        self, call: Call, changes: Changes, exclude: Container[Endpoint], record: Record, timeouts: Timeouts
    ) -> AsyncIterator[Opened]:
        """See Road. A prefiller that fails ends the decoder's request at once, which frees what it holds."""
        if why_whole(call):
            async with self._decoder_alone.open(call, changes, exclude, record, timeouts) as opened:
                yield opened
            return
        decoder, reason = self._pool.choose(call, Role.DECODE, exclude)
        if not self._pool.of_role(Role.PREFILL):
            raise self._pool.nobody(call, Role.PREFILL)
        record.chosen(decoder.name, reason)
        record.prefill_endpoint = ""
        request_id = attempt_id()
        own = dict(changes(decoder))
        token = new_token()
        names = external_ids(call, request_id)
        with self._pool.lease(decoder, call) as lease, LostGuard(lease), Interruptible() as wait:
            push = _Push(self, call, own, exclude, record, request_id, wait)
            url = with_token(await self._url(decoder), token)
            params = {"do_remote_decode": False, "do_remote_prefill": True, "metaserver": url}
            body = edited(call.body, call.fields or {}, {**own, "kv_transfer_params": params})
            headers = request_headers(call, record, request_id)
            asking = self._upstream.request(decoder, "POST", call.target, headers, body, timeouts)
            self._metaserver.expect(token, names, push.run)
            try:
                async with asking as answer:
                    yield Opened(answer, decoder, lease)
            except UpstreamTimeout as error:
                raise push.blamed(error) from None
            finally:
                self._metaserver.forget(token)

    def choose_prefiller(self, call: Call, exclude: Container[Endpoint], record: Record) -> Endpoint:
        """Who computes the prompt. Raises NoEndpointError."""
        prefiller, _ = self._pool.choose(call, Role.PREFILL, exclude)
        record.prefill_endpoint = prefiller.name
        return prefiller

    async def prefill(
        self,
        call: Call,
        fields: dict[str, Any],
        params: dict[str, Any],
        prefiller: Endpoint,
        record: Record,
        request_id: str,
    ) -> None:
        """The prefill leg. Raises UpstreamError."""
        body = edited(call.body, fields, {**fields, **prefill_changes(fields, params)})
        await ask_prefiller(
            self._upstream, self._pool, prefiller, call, body, record, request_id, self._timeout_s
        )


class _Push:
    """What a decoder's question at the metaserver sets off."""

    def __init__(
        self,
        road: PushRoad,
        call: Call,
        changes: dict[str, Any],
        exclude: Container[Endpoint],
        record: Record,
        request_id: str,
        wait: Interruptible,
    ) -> None:
        self._road = road
        self._call = call
        self._fields = {**(call.fields or {}), **changes}
        self._exclude = exclude
        self._record = record
        self._request_id = request_id
        self._wait = wait
        self._prefiller: Endpoint | None = None

    def blamed(self, error: UpstreamTimeout) -> UpstreamTimeout:
        """The decoder's silence, or that of the prefiller that it waits for."""
        if self._prefiller is None:
            return error
        name = self._prefiller.name
        message = f"endpoint {name} has not pushed the cache when the time for an answer was over"
        return UpstreamTimeout(message, name, error.phase, is_answered=error.is_answered)

    async def run(self, params: dict[str, Any]) -> None:
        """Asks a prefiller; its failure is the failure of the whole try.

        Raises:
            UpstreamError: it failed.
            NoEndpointError: there is none.
        """
        try:
            self._prefiller = self._road.choose_prefiller(self._call, self._exclude, self._record)
            await self._road.prefill(
                self._call, self._fields, params, self._prefiller, self._record, self._request_id
            )
            self._prefiller = None
        except UpstreamError as error:
            self._wait.stop(error)
            raise
        except QanatError as error:
            self._wait.stop(UpstreamBroken(error.message, ""))
            raise


def external_ids(call: Call, request_id: str) -> list[str]:
    """By which ids a decoder may ask for a request of this X-Request-Id."""
    if call.path.endswith("/chat/completions"):
        return [f"chatcmpl-{request_id}"]
    return [f"cmpl-{request_id}-0", f"cmpl-{request_id}"]
