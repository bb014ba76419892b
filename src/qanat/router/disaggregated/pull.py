"""Pairs whose decoder fetches the cache: the prefiller answers where it lies, and the decoder is told.

            1 prompt, one token                2 request + where the cache lies
router ------------------------> prefiller    router ------------------------> decoder
       <------------------------                     <------------------------
            where the cache lies                          the answer
                                 prefiller <== cache, fetched == decoder
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Any

from qanat.router.access_log import Record
from qanat.router.body_edit import edited
from qanat.router.disaggregated.prefill_leg import ask_prefiller, prefill_changes, why_whole
from qanat.router.disaggregated.ready_answer import ready_answer
from qanat.router.http.errors import UpstreamBroken
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.lost_guard import LostGuard
from qanat.router.model import Call, Endpoint, Role
from qanat.router.pool import Pool
from qanat.router.road import Changes, Direct, Opened, request_headers, without_params

PREFILL_PARAMS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""kv_transfer_params that make an engine keep a prompt's cache for another one."""


class PullRoad:
    """See Road.

    Args:
        pool: has prefill and decode endpoints.
        upstream: connections.
        prefill_timeout_s: for the prefill leg.
    """

    def __init__(self, pool: Pool, upstream: Upstream, prefill_timeout_s: float) -> None:
        self._pool = pool
        self._upstream = upstream
        self._timeout_s = prefill_timeout_s
        self._decoder_alone = Direct(pool, upstream, Role.DECODE)

    @asynccontextmanager
    async def open(
        self, call: Call, changes: Changes, exclude: Container[Endpoint], record: Record, timeouts: Timeouts
    ) -> AsyncIterator[Opened]:
        """See Road. The decoder is chosen and counted before the prefiller begins, so that it is not overrun."""
        if why_whole(call):
            async with self._decoder_alone.open(call, changes, exclude, record, timeouts) as opened:
                yield opened
            return
        decoder, reason = self._pool.choose(call, Role.DECODE, exclude)
        prefiller, _ = self._pool.choose(call, Role.PREFILL, exclude)
        record.chosen(decoder.name, reason)
        record.prefill_endpoint = prefiller.name
        request_id = attempt_id()
        fields = {**(call.fields or {}), **changes(decoder)}
        with self._pool.lease(decoder, call) as lease, LostGuard(lease):
            ready, params = await self._prefill(call, fields, prefiller, record, request_id)
            if ready is not None:
                yield Opened(ready_answer(ready, fields), prefiller, lease)
                return
            body = edited(
                call.body, call.fields or {}, {**without_params(call), **changes(decoder), **params}
            )
            headers = request_headers(call, record, request_id)
            async with self._upstream.request(
                decoder, "POST", call.target, headers, body, timeouts
            ) as answer:
                yield Opened(answer, decoder, lease)

    async def _prefill(
        self, call: Call, fields: dict[str, Any], prefiller: Endpoint, record: Record, request_id: str
    ) -> tuple[bytes | None, dict[str, Any]]:
        """The prefiller's answer if that is all there is to say, and what the decoder's request is to have more."""
        body = edited(call.body, fields, {**fields, **prefill_changes(fields, PREFILL_PARAMS)})
        content, answer = await ask_prefiller(
            self._upstream, self._pool, prefiller, call, body, record, request_id, self._timeout_s
        )
        if answer.kv_transfer_params:
            return None, {"kv_transfer_params": answer.kv_transfer_params}
        if not answer.is_finished:
            raise UpstreamBroken(
                f"endpoint {prefiller.name} answered the prefill leg without kv_transfer_params; its connector is not "
                "one whose cache is pulled (MooncakeConnectorV1, MooncakeHybridConnector), or its kv_role is not "
                "kv_producer",
                prefiller.name,
                is_answered=True,
            )
        return (content, {}) if _can_speak_for(fields) else (None, {})


def attempt_id() -> str:
    """X-Request-Id of one try at the engines of a pair.

    Engines tell caches apart by it, so that it is never a client's, who may use one twice, and cannot be guessed.
    """
    return secrets.token_hex(16)


def _can_speak_for(fields: dict[str, Any]) -> bool:
    """The prefill leg's output is what the request asked for: nothing that was taken out of it matters."""
    asked = ("logprobs", "stop", "response_format", "tools", "echo", "min_tokens", "return_token_ids")
    return not any(fields.get(name) for name in asked)
