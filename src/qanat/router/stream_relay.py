"""One streamed answer: from as many engines as it takes, to a client who sees a single stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from qanat.core.errors import QanatError
from qanat.router.access_log import Record
from qanat.router.errors import NoEndpointError
from qanat.router.filters import EventFilter, EventReader, StreamRecomputed
from qanat.router.http.errors import UpstreamBroken, UpstreamError
from qanat.router.http.exchange import Downstream, error_body
from qanat.router.http.upstream import Timeouts
from qanat.router.journal import Journal
from qanat.router.model import Call, Endpoint
from qanat.router.pool import Pool
from qanat.router.relay_settings import RelaySettings
from qanat.router.retry import Attempts, Refusal, RetryBudget, note_failure
from qanat.router.road import Opened, Road, answer_headers
from qanat.router.stream_plan import StreamPlan
from qanat.router.whole_relay import pass_on

_POLL_S = 0.05


class StreamRelay:
    """One request. Before the first event it is retried, after it continued.

    Args:
        pool: of the engines.
        settings: bounds.
        budget: of retries.
        road: to an engine.
        call: the client's request, whose fields are decoded.
        downstream: the client.
        record: of the request.
    """

    def __init__(
        self,
        pool: Pool,
        settings: RelaySettings,
        budget: RetryBudget,
        road: Road,
        call: Call,
        downstream: Downstream,
        record: Record,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._road = road
        self._call = call
        self._downstream = downstream
        self._record = record
        self._journal = Journal()
        self._plan = StreamPlan(call, self._journal, pool)
        self._attempts = Attempts(pool, settings, budget, record)
        self._opened: Opened | None = None
        self._num_stuck = 0
        self._num_breaks = 0
        self._budget = budget
        self._end_s = 0.0
        # Silence counts from the first event on; until then the engine has as long as for its first byte.
        timeouts = settings.timeouts
        self._timeouts = Timeouts(timeouts.connect_s, timeouts.first_byte_s, timeouts.first_byte_s)

    async def run(self) -> None:
        """Answers the call.

        Raises:
            QanatError: no engine gave an answer, and the client has got nothing.
        """
        try:
            await self._begin()
        except Refusal as refusal:
            pass_on(refusal, self._downstream, self._record)
        finally:
            self._record.num_output_tokens = self._journal.num_tokens

    async def _begin(self) -> None:
        """Tries until the first event is on its way to the client; what breaks later is continued."""
        while True:
            try:
                await self._leg(self._attempts.exclude)
                return
            except NoEndpointError as error:
                await self._attempts.after_nobody(error)
            except UpstreamError as error:
                if self._downstream.is_started:
                    await self._continue(error)
                    return
                self._restart()
                await self._attempts.after(error)

    def _restart(self) -> None:
        """Nothing was sent, so that the next engine, of whatever kind, begins anew."""
        self._journal = Journal()
        self._plan = StreamPlan(self._call, self._journal, self._pool)

    async def _continue(self, error: UpstreamError) -> None:
        exclude: set[Endpoint] = set()
        while True:
            note_failure(self._pool, error)
            if self._is_over():
                return
            why = self._refusal(error)
            if why:
                self._fail(error, why)
                return
            self._note_gone(error, exclude)
            await self._back_off(error)
            self._plan.next_part(self._elapsed_s())
            self._record.num_continued += 1
            try:
                await self._resume(exclude)
                return
            except UpstreamError as another:
                if isinstance(another, Refusal) and not another.is_retried:
                    self._fail(another, _message_of(another))
                    return
                error = another
                if _is_not_ready(error):
                    self._record.num_continued -= 1
                    await asyncio.sleep(_POLL_S)
            except QanatError as nobody:
                self._fail(error, nobody.message)
                return

    def _note_gone(self, error: UpstreamError, exclude: set[Endpoint]) -> None:
        endpoint = self._pool.find(error.endpoint_name)
        if endpoint is not None and not isinstance(error, StreamRecomputed):
            exclude.add(endpoint)

    def _refusal(self, error: UpstreamError) -> str:
        """Why the stream is not continued; empty if it is to be.

        Engines that are not there, or not ready, may be in a moment: time alone bounds how often they are asked.
        """
        now_s = asyncio.get_running_loop().time()
        if self._journal.num_new_tokens or not self._num_stuck:
            self._num_stuck = 0
            self._end_s = now_s + self._settings.continuation_wait_s
        self._journal.num_new_tokens = 0
        if not _is_not_ready(error):
            self._num_stuck += 1
            if not isinstance(error, StreamRecomputed):
                self._num_breaks += 1
                if self._num_breaks > self._settings.max_breaks:
                    return f"it broke {self._num_breaks} times, and may be what kills the engines"
                if self._num_breaks > 1 and not self._budget.withdraw():
                    return "too many streams break"
        elif now_s >= self._end_s:
            return f"no engine was ready within {self._settings.continuation_wait_s:g} s"
        if self._num_stuck > self._settings.max_continuations:
            return f"{self._settings.max_continuations} further attempts brought no token"
        if not self._settings.is_continuing and not isinstance(error, StreamRecomputed):
            return "continuation is switched off"
        return self._plan.refusal()

    async def _back_off(self, error: UpstreamError) -> None:
        """The first break is mended at once; each further one takes twice as long as the one before it."""
        if self._num_breaks > 1 and not (_is_not_ready(error) or isinstance(error, StreamRecomputed)):
            await asyncio.sleep(self._settings.retry_delay_s * 2 ** (self._num_breaks - 2))

    async def _resume(self, exclude: set[Endpoint]) -> None:
        """Waits for an engine that can go on, and lets it.

        Raises:
            UpstreamError: it failed too.
            QanatError: none came in time.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._leg(self._plan.unfit(exclude))
                return
            except UpstreamError:
                raise
            except QanatError:
                if loop.time() >= self._end_s:
                    raise
                # Who failed may be back by now, and be all there is.
                exclude.clear()
                await asyncio.sleep(_POLL_S)

    async def _leg(self, exclude: set[Endpoint]) -> None:
        """Lets one engine answer, to the end of all that it was asked for."""
        while True:
            async with self._road.open(
                self._call, self._changes, exclude, self._record, self._timeouts
            ) as opened:
                self._opened = opened
                answer = opened.answer
                is_stream = (answer.header(b"content-type") or b"").startswith(b"text/event-stream")
                if answer.status != 200 or not is_stream:
                    await self._refused(opened)
                    return
                events = self._plan.filter(opened.endpoint, opened.lease.tokens)
                reader = EventReader(events, self._note_begin, self._send, opened.endpoint.name)
                await answer.pump(reader, self._downstream)
                self._check_end(opened, events)
                self._pool.succeeded(opened.endpoint)
            if self._journal.is_done or self._journal.is_failed:
                self._downstream.end()
                return

    def _changes(self, endpoint: Endpoint) -> Mapping[str, Any]:
        return self._plan.changes(endpoint)

    async def _refused(self, opened: Opened) -> None:
        """An answer that is no stream: an error, or a client's own request that an engine answers otherwise."""
        answer = opened.answer
        body = await answer.read()
        name = opened.endpoint.name
        if answer.status == 200 and not body:
            raise UpstreamBroken(f"endpoint {name} answered 200 with an empty body", name, is_answered=True)
        raise Refusal(name, answer.status, answer.headers, body)

    def _check_end(self, opened: Opened, events: EventFilter) -> None:
        if not (self._journal.is_done or self._journal.is_failed or self._plan.has_ended_part(events)):
            name = opened.endpoint.name
            raise UpstreamBroken(f"endpoint {name} ended its stream too early", name, is_answered=True)

    def _note_begin(self) -> None:
        """The engine has begun to generate: from now on silence counts."""
        if self._opened is not None:
            self._opened.answer.set_idle_timeout(self._settings.timeouts.idle_s)

    def _send(self, data: bytes) -> None:
        downstream = self._downstream
        if self._opened is not None:
            if not downstream.is_started:
                headers = answer_headers(self._opened.answer.headers, self._record, has_length=False)
                downstream.start(200, headers)
                self._record.first_byte_s = asyncio.get_running_loop().time() - self._record.begin_s
            self._opened = None
            mark = self._plan.mark()
            data = mark + data if mark else data
        downstream.write(data)

    def _is_over(self) -> bool:
        """All but the mark of the end came before the break."""
        if self._journal.is_failed or self._plan.is_ended():
            if not (self._journal.is_failed or self._journal.is_done):
                self._downstream.write(self._plan.ending())
            self._downstream.end()
            return True
        return False

    def _fail(self, error: QanatError, why: str) -> None:
        """The last event of a stream that cannot be continued, in place of [DONE]."""
        self._record.error = error.code
        message = f"{error.message}; the stream could not be continued: {why}"
        body = error_body(message, "server_error", "stream_broken")
        self._downstream.write(b"data: %b\n\n" % body)
        self._downstream.end()

    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._record.begin_s


def _is_not_ready(error: UpstreamError) -> bool:
    """The engine has not begun with the request: it is not there, or says that it takes none now."""
    return not error.is_sent or isinstance(error, Refusal)


def _message_of(refusal: Refusal) -> str:
    text = refusal.body.decode("utf-8", "replace").strip()
    return f"{refusal.message}: {text[:500]}"
