"""What engines say of their models, and which kind of engine they are by that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from qanat.router.calls import KEY_HEADERS
from qanat.router.http.errors import UpstreamError
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.model import Call, Endpoint, EngineKind, Header
from qanat.router.pool import Pool

_LOG = logging.getLogger(__name__)
_MAX_TRIED = 32
_LOCKED = (401, 403)
_SAY = "say kind=qanat or kind=vllm with its --endpoint"


class _Models(msgspec.Struct):
    data: list[dict[str, Any]] = []


class ModelReader:
    """Reads /v1/models of engines. Where that takes a key which the router has not, those of clients are tried.

    Args:
        pool: of the engines.
        upstream: connections to them.
        timeouts: for a question.
        headers: the router's own key, if it has one.

    Attributes:
        cards: what each engine says of its models to the router; what it says to a client's key is that client's.
    """

    def __init__(self, pool: Pool, upstream: Upstream, timeouts: Timeouts, headers: Sequence[Header]) -> None:
        self.cards: dict[Endpoint, list[dict[str, Any]]] = {}
        self._pool = pool
        self._upstream = upstream
        self._timeouts = timeouts
        self._headers = headers
        self._locked: dict[Endpoint, set[str]] = {}
        self._named: set[Endpoint] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        pool.on_removed(self._forget)

    @property
    def num_asking(self) -> int:
        """Questions with clients' keys that are under way."""
        return len(self._tasks)

    def close(self) -> None:
        """Asks no more."""
        for task in self._tasks:
            task.cancel()

    def offer(self, call: Call) -> None:
        """A call whose key, if it has one, goes to engines: it may open the models of those that asked for one.

        Each key is tried once between two looks, at engines which the call itself may go to, and kept nowhere.
        """
        if not self._locked:
            return
        headers = [header for header in call.headers if header[0] in KEY_HEADERS]
        if not headers or not call.key_hash:
            return
        for endpoint, tried in self._locked.items():
            if call.key_hash not in tried and len(tried) < _MAX_TRIED:
                tried.add(call.key_hash)
                task = asyncio.create_task(self._try(endpoint, headers))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _try(self, endpoint: Endpoint, headers: Sequence[Header]) -> None:
        status, body = await self._ask(endpoint, headers)
        if status == 200 and endpoint in self._pool.members:
            self._locked.pop(endpoint, None)
            self._learn(endpoint, _named(body))

    async def read(self, endpoint: Endpoint) -> None:
        """Learns which models the engine serves, and what kind of engine it is."""
        status, body = await self._ask(endpoint, self._headers)
        if endpoint not in self._pool.members:
            return
        if status == 200:
            self._locked.pop(endpoint, None)
            cards = _named(body)
            if cards:
                self.cards[endpoint] = cards
            self._learn(endpoint, cards)
        elif status in _LOCKED:
            self._locked[endpoint] = set()
            self._name(
                endpoint,
                "lists its models to its own keys alone, and the router has none (--engine-key-env): until a client's "
                f"key opens them, streams that break go on from their text; {_SAY}",
            )

    async def _ask(self, endpoint: Endpoint, headers: Sequence[Header]) -> tuple[int, bytes]:
        try:
            async with self._upstream.request(
                endpoint, "GET", "/v1/models", headers, timeouts=self._timeouts
            ) as answer:
                return answer.status, await answer.read()
        except UpstreamError:
            return 0, b""

    def _learn(self, endpoint: Endpoint, named: list[dict[str, Any]]) -> None:
        if not named:
            return
        models = frozenset(card["id"] for card in named)
        lengths = [card["max_model_len"] for card in named if isinstance(card.get("max_model_len"), int)]
        endpoint.max_model_len = max(lengths, default=endpoint.max_model_len)
        owners = {str(card.get("owned_by")) for card in named}
        if endpoint.kind is EngineKind.UNKNOWN:
            endpoint.kind = next((kind for kind in EngineKind if kind.value in owners), EngineKind.UNKNOWN)
        self._name(
            endpoint,
            "does not say what kind of engine it is: streams that break go on from their text, with each piece taken "
            f"for a token; {_SAY}",
        )
        if models != endpoint.models:
            endpoint.models = models
            self._pool.refresh(endpoint)

    def _name(self, endpoint: Endpoint, what: str) -> None:
        """Tells once of an engine whose kind is not known."""
        if endpoint.kind is EngineKind.UNKNOWN and endpoint not in self._named:
            self._named.add(endpoint)
            _LOG.warning("endpoint %s %s", endpoint.name, what)

    def _forget(self, endpoint: Endpoint) -> None:
        self.cards.pop(endpoint, None)
        self._locked.pop(endpoint, None)
        self._named.discard(endpoint)


def _named(body: bytes) -> list[dict[str, Any]]:
    try:
        cards = msgspec.json.decode(body, type=_Models).data
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    return [card for card in cards if isinstance(card.get("id"), str)]
