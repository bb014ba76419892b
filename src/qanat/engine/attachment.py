"""A front end attaches to the cores of another process: to those that serve; the others come when they do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, QanatError
from qanat.engine.attached_client import CoreNews
from qanat.engine.core_client import CoreClient
from qanat.engine.messages import Ready
from qanat.engine.replica import Seat, Started


async def attached(
    news: Mapping[int, CoreNews], seats: Sequence[Seat], config: ResolvedConfig
) -> list[Started]:
    """Waits until at least one core serves, however long that takes, and for each one whose first start is under way.

    A replica that is dead begins as one, with the figures of one that serves until it has its own: all have the same
    settings.

    Args:
        news: what the owner of the cores says of each, by rank.
        seats: of all replicas, at least one.
        config: every setting.

    Raises:
        EngineDeadError: all are dead for good.
    """
    await asyncio.gather(*(one.first() for one in news.values()))
    while True:
        await _first_life(list(news.values()))
        outcomes = await asyncio.gather(*(_attach(seat, news[seat.rank], config) for seat in seats))
        serving = next((one.ready for one in outcomes if isinstance(one, Started)), None)
        if serving is not None:
            return [
                one if isinstance(one, Started) else _absent(seat, serving, one)
                for seat, one in zip(seats, outcomes, strict=True)
            ]


async def _first_life(news: Sequence[CoreNews]) -> None:
    """Returns once one core lives."""
    waits = [asyncio.create_task(one.life()) for one in news]
    death: QanatError | None = None
    try:
        for wait in asyncio.as_completed(waits):
            try:
                await wait
            except EngineDeadError as error:
                death = death or error
            else:
                return
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    raise death or EngineDeadError("There is no replica.")


async def _attach(seat: Seat, news: CoreNews, config: ResolvedConfig) -> Started | EngineDeadError:
    """The replica, or why it does not serve now."""
    if news.death is not None:
        return news.death
    client = seat.make_client()
    try:
        return Started(seat, client, await client.start(config))
    except EngineDeadError as error:
        await client.stop()
        return error
    except BaseException:
        await client.stop()
        raise


def _absent(seat: Seat, ready: Ready, death: EngineDeadError) -> Started:
    client: CoreClient = seat.make_client()  # of no core: its successor is the first that gets one
    return Started(seat, client, ready, death)
