"""What a core says, until it has died."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import zmq
import zmq.asyncio

LAST_NEWS_S = 0.2
"""How long what a core said before its end may be on its way."""


async def next_message(inbox: zmq.asyncio.Socket, end: asyncio.Future[Any]) -> bytes | None:
    """The next message; one that is already there comes at once, without a turn of the event loop.

    Args:
        inbox: carries them.
        end: done once the core has died.

    Returns:
        None if nothing more can come.
    """
    with contextlib.suppress(zmq.Again):
        return await inbox.recv(flags=zmq.NOBLOCK)
    received: asyncio.Future[bytes] = asyncio.ensure_future(inbox.recv())
    awaited: set[asyncio.Future[Any]] = {received, end}
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    if not received.done():
        await asyncio.wait({received}, timeout=LAST_NEWS_S)
    if not received.done():
        received.cancel()
        return None
    return received.result()
