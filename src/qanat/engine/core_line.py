"""The line to the core over its lives: hears what it says, notices when it is stuck or dead, replaces a dead one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, QanatError
from qanat.core.profile import ProfileReport
from qanat.engine.core_calls import CoreCalls
from qanat.engine.core_client import ClientFactory, CoreClient
from qanat.engine.messages import (
    AddRequests,
    CallReply,
    Ready,
    ResetPrefixes,
    StartProfile,
    StepDone,
    StopProfile,
    ToCore,
)
from qanat.engine.restarts import WINDOW_S, Comeback, RestartBudget
from qanat.engine.stall_watch import StallWatch

logger = logging.getLogger(__name__)

MAX_RECEIVING_S = 0.005
"""CPU time for which steps that have piled up are taken in a row before the streams get their turn."""


class EngineHealth(msgspec.Struct, frozen=True):
    """Whether work makes progress.

    Attributes:
        is_alive: the core's process lives, or a new one is on its way.
        num_pending: requests that wait or run.
        last_step_age_s: seconds since the last step ended, or since work arrived if that was later.
        is_healthy: alive, and no work has waited longer than the step limit without a step.
        is_restarting: the core died, and a new one is on its way.
        reason: why it is not alive, or restarting.
        replicas: of each replica by its rank, where there are several.
    """

    is_alive: bool
    num_pending: int
    last_step_age_s: float
    is_healthy: bool
    is_restarting: bool = False
    reason: str = ""
    replicas: dict[int, EngineHealth] = {}


@dataclass(frozen=True)
class Listener:
    """Who is told of the core's news.

    Attributes:
        on_step: a step has ended.
        on_death: nothing more comes of what was asked for; every caller is to get this error.
        on_replaced: a new core serves, with these figures.
    """

    on_step: Callable[[StepDone], Awaitable[None]]
    on_death: Callable[[QanatError], None]
    on_replaced: Callable[[Ready], None]


class CoreLine:
    """Talks to whichever core lives now.

    Args:
        client: to a core that serves, or of one that is dead.
        config: what a new core is started with.
        restarts: how often one that died is replaced.
        listener: told of news, in the order in which they come.
        make_client: makes the client for a new core.
        name: of the core in messages, where there are several.
        death: of the core; None if it serves.

    Attributes:
        stalls: how long it has owed an answer.
    """

    def __init__(
        self,
        client: CoreClient,
        config: ResolvedConfig,
        restarts: RestartBudget,
        listener: Listener,
        *,
        make_client: ClientFactory,
        name: str = "",
        death: EngineDeadError | None = None,
    ) -> None:
        self._client = client
        self._make_client = make_client
        self._prefix = f"{name}: " if name else ""
        self._name = name or "The engine"
        self._config = config
        self._restarts = restarts
        self._listener = listener
        self._calls = CoreCalls()
        self._death: QanatError | None = None if death is None else self._named(death)
        self._comeback: Comeback | None = None
        self.stalls = StallWatch(config.step_timeout_s)
        self._tasks = [
            asyncio.create_task(self._receive(death)),
            asyncio.create_task(self.stalls.watch(lambda: self._client.ask_for_stacks())),
        ]

    @property
    def pid(self) -> int | None:
        """Process id of the core."""
        return self._client.pid

    @property
    def death(self) -> QanatError | None:
        """Why nothing can be asked of the core now; None while it serves."""
        return self._death if self._comeback is None else self._comeback.error()

    @property
    def num_restarts(self) -> int:
        """Cores that were started, or tried to be, after one had died."""
        return self._restarts.num_restarts

    def health(self, num_pending: int) -> EngineHealth:
        """Whether work makes progress, for so many requests that wait or run."""
        death, is_restarting = self.death, self._comeback is not None
        return EngineHealth(
            is_alive=death is None or is_restarting,
            num_pending=num_pending,
            last_step_age_s=self.stalls.age_s,
            is_healthy=death is None and not self.stalls.is_stalled,
            is_restarting=is_restarting,
            reason=death.message if death else "",
        )

    async def send(self, message: ToCore) -> None:
        """Queues a message for the core.

        Raises:
            EngineDeadError: the core has hung up.
        """
        if isinstance(message, AddRequests):
            for request in message.requests:
                self.stalls.expect(request.request_id)
        await self._client.send(message)

    async def start_profile(self) -> None:
        """Has the core record its steps; see `AsyncEngine.start_profile`."""
        await self._ask(StartProfile)

    async def stop_profile(self) -> ProfileReport:
        """Has the core end its profile; see `AsyncEngine.stop_profile`."""
        report = await self._ask(StopProfile)
        assert report is not None
        return report

    async def reset_prefixes(self) -> None:
        """Has the core forget its cached prefixes; see `AsyncEngine.reset_prefix_cache`."""
        await self._ask(ResetPrefixes)

    async def _ask(
        self, question: type[StartProfile] | type[StopProfile] | type[ResetPrefixes]
    ) -> ProfileReport | None:
        if self.death is not None:
            raise self.death
        number, reply = self._calls.new()
        await self._client.send(question(number))
        return await reply

    def fail(self, error: QanatError) -> None:
        """From now on nothing can be asked of the core, nor of one to come; all who wait get this error."""
        self._comeback = None
        self._death = self._death or error
        self.stalls.forget()
        self._calls.fail_all(self._death)
        self._listener.on_death(self._death)

    async def close(self) -> None:
        """Ends the core's process. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.stop()

    def _named(self, death: EngineDeadError) -> EngineDeadError:
        """With the core's name, which a process in between may have said already."""
        return EngineDeadError(self._prefix + death.message.removeprefix(self._prefix))

    async def _receive(self, death: EngineDeadError | None) -> None:
        """Passes news on; goes on with a new core when one dies, as far as that is wished."""
        try:
            while True:
                try:
                    if death is not None:
                        raise death
                    await self._take_news()
                except EngineDeadError as error:
                    death = None
                    reason = self._named(error)
                    logger.error("%s%s", reason.message, self._client.last_words())
                    if not await self._replace_core(reason):
                        return
        except Exception as error:  # whatever it is, nobody may wait for ever
            logger.exception("The front end cannot go on.")
            self._death = EngineDeadError(f"The front end of the engine failed: {error}")
            self.fail(self._death)

    async def _take_news(self) -> None:
        turn_s = time.thread_time()
        while True:
            message = await self._client.receive()
            if isinstance(message, CallReply):
                self._calls.take(message)
                continue
            assert isinstance(message, StepDone)
            self.stalls.hear(
                output.request_id for output in message.outputs if output.finish_reason is not None
            )
            await self._listener.on_step(message)
            if time.thread_time() - turn_s > MAX_RECEIVING_S:
                await asyncio.sleep(0)
                turn_s = time.thread_time()

    async def _replace_core(self, death: EngineDeadError) -> bool:
        """Ends all calls with this error; True once a new core serves, False if there is to be none."""
        self.fail(death)
        while (delay_s := self._restarts.next_delay_s()) is not None:
            self._comeback = Comeback(death.message, delay_s=delay_s, start_s=self._client.start_s)
            logger.warning(
                "%s is restarted in %.0f s (restart %d; at most %d within %.0f s).",
                self._name,
                delay_s,
                self._restarts.num_restarts,
                self._restarts.max_restarts,
                WINDOW_S,
            )
            await asyncio.sleep(delay_s)
            if await self._start_anew():
                return True
        if self._restarts.max_restarts:
            logger.error("%s died too often (--max-engine-restarts); it is not started again.", self._name)
        self._comeback = None
        return False

    async def _start_anew(self) -> bool:
        client: CoreClient | None = None
        try:
            client = self._make_client()
            ready = await client.start(self._config)
        except (
            Exception
        ) as error:  # the core's own reasons, or the system has no room, no files, no processes left
            words = client.last_words() if client is not None else ""
            logger.error("%s could not be restarted: %s%s", self._name, error, words)
            if client is not None:
                await client.stop()
            return False
        except BaseException:
            if client is not None:
                await client.stop()
            raise
        old, self._client = self._client, client
        await old.stop()
        self._death = self._comeback = None
        self._listener.on_replaced(ready)
        logger.warning("%s serves again, as process %s.", self._name, client.pid)
        return True
