"""Answers in one piece, and all that the router does not look into: passed on as the engine gave them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from qanat.router.access_log import Record
from qanat.router.errors import NoEndpointError
from qanat.router.filters import StreamRecomputed
from qanat.router.http.errors import UpstreamBroken, UpstreamError
from qanat.router.http.exchange import Downstream
from qanat.router.model import Call, Endpoint, EngineKind
from qanat.router.pool import Pool
from qanat.router.relay_settings import RelaySettings
from qanat.router.retry import RETRIED_STATUSES, Attempts, Refusal, RetryBudget, note_failure
from qanat.router.road import AnswerLike, Opened, Road, answer_headers
from qanat.router.text_filter import ABORTED, RECOMPUTED

_EVENT_STREAM = b"text/event-stream"


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Choice(msgspec.Struct):
    finish_reason: Any = None
    stop_reason: Any = None


class _Body(msgspec.Struct):
    usage: _Usage | None = None
    choices: list[_Choice] = []


_BODY = msgspec.json.Decoder(_Body)


class WholeRelay:
    """One request; a try that delivered nothing is repeated where that doubles nothing."""

    def __init__(
        self,
        pool: Pool,
        settings: RelaySettings,
        budget: RetryBudget,
        road: Road,
        record: Record,
        *,
        is_repeatable: bool,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._road = road
        self._record = record
        self._attempts = Attempts(pool, settings, budget, record, is_repeatable=is_repeatable)

    async def run(self, call: Call, downstream: Downstream) -> None:
        """Answers the call.

        Raises:
            QanatError: no engine gave an answer, and the client has got nothing.
        """
        try:
            await self._until_answered(call, downstream)
        except Refusal as refusal:
            pass_on(refusal, downstream, self._record)

    async def _until_answered(self, call: Call, downstream: Downstream) -> None:
        while True:
            try:
                await self._try(call, downstream)
                return
            except NoEndpointError as error:
                await self._attempts.after_nobody(error)
            except UpstreamError as error:
                if downstream.is_started:
                    note_failure(self._pool, error)
                    self._record.error = error.code
                    downstream.abort()
                    return
                await self._attempts.after(error)

    async def _try(self, call: Call, downstream: Downstream) -> None:
        exclude = self._attempts.exclude
        async with self._road.open(
            call, _unchanged, exclude, self._record, self._settings.timeouts
        ) as opened:
            answer = opened.answer
            if answer.status in RETRIED_STATUSES:
                raise Refusal(opened.endpoint.name, answer.status, answer.headers, await answer.read())
            is_stream = (answer.header(b"content-type") or b"").startswith(_EVENT_STREAM)
            pieces: list[bytes] = []
            num_bytes = 0
            if not is_stream:
                async for piece in answer.body():
                    pieces.append(piece)
                    num_bytes += len(piece)
                    if num_bytes > self._settings.max_buffered_bytes:
                        is_stream = True
                        break
            if is_stream:
                await self._pass_through(opened, b"".join(pieces), downstream)
            else:
                body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                self._check(call, opened, body)
                self._answer(answer, body, downstream)
                self._settle(opened, body)

    async def _pass_through(self, opened: Opened, begun: bytes, downstream: Downstream) -> None:
        """What is not looked into. The client gets a status with the first piece: until then another may be asked."""
        answer = opened.answer
        record = self._record
        timeouts = self._settings.timeouts

        def start() -> None:
            record.first_byte_s = _since(record)
            answer.set_idle_timeout(timeouts.idle_s)
            downstream.start(answer.status, answer_headers(answer.headers, record, has_length=True))

        def receive(piece: bytes) -> None:
            if not downstream.is_started:
                start()
            opened.lease.moved()
            downstream.write(piece)

        if begun:
            receive(begun)
        else:
            answer.set_idle_timeout(timeouts.first_byte_s)
        await answer.pump(receive, downstream)
        if not downstream.is_started:
            if answer.status == 200:
                name = opened.endpoint.name
                raise UpstreamBroken(
                    f"endpoint {name} answered 200 with an empty body", name, is_answered=True
                )
            start()
        downstream.end()
        self._settle(opened, b"")

    def _check(self, call: Call, opened: Opened, body: bytes) -> None:
        name = opened.endpoint.name
        if opened.answer.status != 200 or call.method != "POST" or not call.path.startswith("/v1/"):
            return
        if not body:
            raise UpstreamBroken(f"endpoint {name} answered 200 with an empty body", name, is_answered=True)
        if b'"recomputed"' in body and any(each.stop_reason == RECOMPUTED for each in _body(body).choices):
            raise StreamRecomputed(f"endpoint {name} gave the request back", name, is_answered=True)
        # Qanat says so only of requests that somebody ended on purpose.
        is_cut_short = b'"abort"' in body and any(
            each.finish_reason == ABORTED for each in _body(body).choices
        )
        if is_cut_short and opened.endpoint.kind is not EngineKind.QANAT:
            raise UpstreamBroken(f"endpoint {name} ended the request before its end", name, is_answered=True)

    def _answer(self, answer: AnswerLike, body: bytes, downstream: Downstream) -> None:
        record = self._record
        record.first_byte_s = _since(record)
        headers = answer_headers(answer.headers, record, has_length=True)
        if answer.header(b"content-length") is None:
            headers.append((b"content-length", b"%d" % len(body)))
        downstream.start(answer.status, headers)
        downstream.write(body)
        downstream.end()

    def _settle(self, opened: Opened, body: bytes) -> None:
        if opened.answer.status >= 500:
            self._pool.failed(
                opened.endpoint, f"endpoint {opened.endpoint.name} answered {opened.answer.status}"
            )
            return
        self._pool.succeeded(opened.endpoint)
        usage = _body(body).usage if b'"usage"' in body else None
        if usage is not None:
            self._record.num_prompt_tokens = usage.prompt_tokens
            self._record.num_output_tokens = usage.completion_tokens
            opened.lease.tokens(usage.completion_tokens or 0)


def pass_on(refusal: Refusal, downstream: Downstream, record: Record) -> None:
    """An engine's error as the client's answer: the same status, headers and body."""
    if refusal.answer_status >= 400:
        record.error = record.error or refusal.code
    headers = answer_headers(refusal.headers, record, has_length=False)
    headers.append((b"content-length", b"%d" % len(refusal.body)))
    downstream.start(refusal.answer_status, headers)
    downstream.write(refusal.body)
    downstream.end()


def _body(body: bytes) -> _Body:
    try:
        return _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Body()


def _since(record: Record) -> float:
    return asyncio.get_running_loop().time() - record.begin_s


def _unchanged(endpoint: Endpoint) -> Mapping[str, Any]:
    return {}
