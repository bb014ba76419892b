"""What waits for a caller is bounded, and a call fails once."""

from __future__ import annotations

import asyncio

import pytest

from qanat.core.errors import EngineDeadError, SlowClientError
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason
from qanat.engine.request_stream import MAX_UNREAD_OUTPUTS, RequestStream
from tests.engine.test_detokenizer import TOKENIZER
from tests.engine.test_output_processor import request

pytestmark = pytest.mark.asyncio


async def test_a_caller_who_does_not_read_is_given_up_once() -> None:
    stream = RequestStream("r", TOKENIZER, [request()])
    results = [
        stream.put(RequestOutput(request_id="r", new_token_ids=[i])) for i in range(MAX_UNREAD_OUTPUTS + 3)
    ]
    assert results.count(False) == 1
    assert results[MAX_UNREAD_OUTPUTS] is False
    assert (await stream.get()).new_token_ids == list(range(MAX_UNREAD_OUTPUTS))
    with pytest.raises(SlowClientError):
        await stream.get()


async def test_the_first_error_is_the_one_that_is_told() -> None:
    stream = RequestStream("r", TOKENIZER, [request()])
    stream.fail(EngineDeadError("first"))
    stream.fail(EngineDeadError("second"))
    with pytest.raises(EngineDeadError, match="first"):
        await stream.get()


async def test_a_caller_who_keeps_up_gets_outputs_one_by_one() -> None:
    stream = RequestStream("r", TOKENIZER, [request()])
    reading = asyncio.create_task(stream.get())
    await asyncio.sleep(0)
    stream.put(RequestOutput(request_id="r", new_token_ids=[1]))
    assert (await reading).new_token_ids == [1]
    stream.put(RequestOutput(request_id="r", new_token_ids=[2]))
    assert (await stream.get()).new_token_ids == [2]


async def test_what_waits_comes_in_one_piece_with_the_end_of_the_last() -> None:
    stream = RequestStream("r", TOKENIZER, [request()])
    for i in range(3):
        stream.put(RequestOutput(request_id="r", new_token_ids=[i], num_cached_tokens=7))
    stream.put(RequestOutput(request_id="other", new_token_ids=[9]))
    last = RequestOutput(
        request_id="r",
        new_token_ids=[3],
        num_cached_tokens=7,
        finish_reason=FinishReason.STOP,
        stop_token_id=3,
    )
    stream.put(last)
    assert await stream.get() == RequestOutput(
        request_id="r",
        new_token_ids=[0, 1, 2, 3],
        num_cached_tokens=7,
        finish_reason=FinishReason.STOP,
        stop_token_id=3,
    )
    assert (await stream.get()).new_token_ids == [9]


async def test_an_error_at_the_end_does_not_take_the_tokens_before_it_along() -> None:
    stream = RequestStream("r", TOKENIZER, [request()])
    stream.put(RequestOutput(request_id="r", new_token_ids=[1]))
    stream.put(RequestOutput(request_id="r", new_token_ids=[2]))
    error = RequestOutput(request_id="r", finish_reason=FinishReason.ERROR, error_code="deadline_exceeded")
    stream.put(error)
    assert (await stream.get()).new_token_ids == [1, 2]
    assert await stream.get() == error
