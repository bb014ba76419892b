"""The line to the core when nobody is at its other end."""

from __future__ import annotations

import asyncio

import pytest

from qanat.core.errors import EngineDeadError
from qanat.engine.messages import AbortRequest
from qanat.engine.process_client import ProcessClient

pytestmark = pytest.mark.asyncio


async def test_sending_to_a_core_that_has_hung_up_is_an_error_and_does_not_wait() -> None:
    client = ProcessClient()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(EngineDeadError):
                await client.send(AbortRequest("a"))
    finally:
        await client.stop()


async def test_stopping_twice_is_harmless() -> None:
    client = ProcessClient()
    await client.stop()
    await client.stop()
    assert client.pid is None
