"""Answers about profiles reach those who asked."""

from __future__ import annotations

import pytest

from qanat.core.errors import EngineDeadError, ProfilerStateError
from qanat.core.profile import ProfileReport
from qanat.engine.core_calls import CoreCalls
from qanat.engine.messages import CallReply

pytestmark = pytest.mark.asyncio


async def test_each_reply_goes_to_its_question() -> None:
    calls = CoreCalls()
    (first, first_reply), (second, second_reply) = calls.new(), calls.new()
    report = ProfileReport(["/x"], 1, 2, 0.5, "request")
    calls.take(CallReply(second, report))
    calls.take(CallReply(first, None, ProfilerStateError.code, "not now"))
    assert await second_reply == report
    with pytest.raises(ProfilerStateError, match="not now"):
        await first_reply
    calls.take(CallReply(first, report))  # said twice, or too late: nobody minds


async def test_nobody_waits_for_a_core_that_is_gone() -> None:
    calls = CoreCalls()
    _, reply = calls.new()
    calls.fail_all(EngineDeadError("gone"))
    with pytest.raises(EngineDeadError):
        await reply
    calls.fail_all(EngineDeadError("gone"))
