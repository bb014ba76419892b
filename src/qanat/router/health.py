"""Looks at every engine again and again, and tells the pool whom to take out and whom to take back."""

from __future__ import annotations

import asyncio
import logging
import re

import msgspec

from qanat.router.http.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.model import Endpoint, Header
from qanat.router.models import ModelReader
from qanat.router.pool import Pool
from qanat.router.vitals import Finding, Look, Verdict, VitalRules, Vitals

_LOG = logging.getLogger(__name__)
_COUNTERS = re.compile(rb"^vllm:(?:prompt|generation)_tokens_total(?:\{[^}]*\})? (\S+)", re.MULTILINE)
_JSON: Header = (b"content-type", b"application/json")
_MAX_WHY_CHARS = 200
MODELS_INTERVAL_S = 30.0
OUT_INTERVAL_S = 1.0
"""Between looks at an engine that is out, unless looks are made more often anyway."""


class Monitor:
    """One task for each endpoint of the pool, from when it is added until it is removed.

    Attributes:
        models: what each engine says of its models.
    """

    def __init__(
        self,
        pool: Pool,
        upstream: Upstream,
        interval_s: float = 2.0,
        timeout_s: float = 3.0,
        rules: VitalRules | None = None,
        engine_key: str | None = None,
    ) -> None:
        self._pool = pool
        self._upstream = upstream
        self._interval_s = interval_s
        self._timeouts = Timeouts(timeout_s, timeout_s, timeout_s)
        self._rules = rules or VitalRules()
        self._headers: list[Header] = []
        if engine_key:
            self._headers.append((b"authorization", b"Bearer " + engine_key.encode("ascii")))
        self.models = ModelReader(pool, upstream, self._timeouts, self._headers)
        self._watches: dict[Endpoint, _Watch] = {}
        self._ticking: asyncio.Task[None] | None = None
        pool.on_added(self._add)
        pool.on_removed(self._remove)
        pool.on_doubt(self.look_now)

    def start(self) -> None:
        """Begins to look."""
        self._ticking = asyncio.create_task(self._tick())
        for endpoint in self._pool.members:
            self._add(endpoint)

    async def close(self) -> None:
        """Looks no more."""
        tasks = [watch.task for watch in self._watches.values()]
        if self._ticking is not None:
            tasks.append(self._ticking)
        self._watches.clear()
        self.models.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look_now(self, endpoint: Endpoint) -> None:
        """A request has just failed there: the next look does not wait."""
        if watch := self._watches.get(endpoint):
            watch.wake.set()

    def _add(self, endpoint: Endpoint) -> None:
        if self._ticking is not None and endpoint not in self._watches:
            self._watches[endpoint] = _Watch(self, endpoint)

    def _remove(self, endpoint: Endpoint) -> None:
        if watch := self._watches.pop(endpoint, None):
            watch.task.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(self._interval_s, 0.25))
            self._pool.tick()

    async def get(self, endpoint: Endpoint, path: str) -> tuple[int, bytes]:
        """Status and body of a path of the engine. Raises UpstreamError."""
        async with self._upstream.request(
            endpoint, "GET", path, self._headers, timeouts=self._timeouts
        ) as answer:
            return answer.status, await answer.read()

    async def ask_token(self, endpoint: Endpoint) -> bool:
        """Asks for one token; False if it did not come in time, or not at all."""
        limit_s = self._rules.stall_s
        model = next(iter(sorted(endpoint.models)), None)
        question = {"prompt": "1", "max_tokens": 1, "temperature": 0} | ({"model": model} if model else {})
        timeouts = Timeouts(self._timeouts.connect_s, limit_s, limit_s)
        try:
            async with self._upstream.request(
                endpoint,
                "POST",
                "/v1/completions",
                [*self._headers, _JSON],
                msgspec.json.encode(question),
                timeouts,
            ) as answer:
                await answer.read()
                return answer.status < 500
        except UpstreamError:
            return False


class _Watch:
    """The looks at one engine."""

    def __init__(self, monitor: Monitor, endpoint: Endpoint) -> None:
        self.wake = asyncio.Event()
        self._monitor = monitor
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._vitals = Vitals(self._loop.time(), monitor._rules)
        self._asking: asyncio.Task[None] | None = None
        self._models_s = -MODELS_INTERVAL_S
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while True:
                self.wake.clear()
                try:
                    verdict, why = await self._look()
                    self._act(verdict, why)
                except Exception:
                    _LOG.exception("a look at endpoint %s failed", self._endpoint.name)
                    verdict, why = Verdict.WAIT, ""
                if verdict is Verdict.WAIT and why:
                    continue  # one miss may be chance: the second look decides, at once
                interval_s = self._monitor._interval_s
                member = self._monitor._pool.members.get(self._endpoint)
                if member is not None and not member.is_healthy:
                    interval_s = min(interval_s, OUT_INTERVAL_S)
                try:
                    await asyncio.wait_for(self.wake.wait(), interval_s)
                except TimeoutError:
                    continue
        finally:
            if self._asking is not None:
                self._asking.cancel()

    async def _look(self) -> tuple[Verdict, str]:
        endpoint, monitor = self._endpoint, self._monitor
        finding, why = await self._find()
        num_tokens = None
        if finding is Finding.OK and self._vitals.is_still:
            num_tokens = await self._engine_tokens()
        if finding is Finding.OK and self._loop.time() - self._models_s >= MODELS_INTERVAL_S:
            await monitor.models.read(endpoint)
            self._models_s = self._loop.time()
        look = Look(finding, endpoint.num_running, endpoint.num_pieces, num_tokens)
        return self._vitals.look(self._loop.time(), look), why

    async def _find(self) -> tuple[Finding, str]:
        try:
            status, body = await self._monitor.get(self._endpoint, "/health")
        except UpstreamUnreachable as error:
            return Finding.REFUSED, error.message
        except UpstreamTimeout as error:
            return Finding.SILENT, error.message
        except UpstreamError as error:
            return Finding.BROKEN, error.message
        if status < 500:
            return Finding.OK, ""
        text = body.decode("utf-8", "replace").strip()[:_MAX_WHY_CHARS]
        return Finding.SICK, f"its /health answers {status}" + (f": {text}" if text else "")

    async def _engine_tokens(self) -> float | None:
        try:
            status, body = await self._monitor.get(self._endpoint, "/metrics")
            values = [float(each) for each in _COUNTERS.findall(body)]
        except (UpstreamError, ValueError):
            return None
        return sum(values) if status == 200 and values else None

    def _act(self, verdict: Verdict, why: str) -> None:
        pool, endpoint = self._monitor._pool, self._endpoint
        if verdict is Verdict.HEALTHY:
            pool.set_health(endpoint, True)
        elif verdict is Verdict.ASK:
            self._asking = asyncio.create_task(self._ask())
        elif verdict is not Verdict.WAIT:
            # A new process may serve other models, and has an empty cache.
            self._models_s = -MODELS_INTERVAL_S
            pool.set_health(endpoint, False, why, is_silent=verdict is Verdict.SILENT)
            if verdict is Verdict.REFUSED:
                pool.policy.forget(endpoint)

    async def _ask(self) -> None:
        if await self._monitor.ask_token(self._endpoint):
            verdict = self._vitals.answered(self._loop.time())
        else:
            verdict = self._vitals.unanswered()
        span_s = self._monitor._rules.stall_s
        self._act(verdict, f"it is busy, moved nothing for {span_s:g} s and then computed no token either")
