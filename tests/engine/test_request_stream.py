"""What waits for a caller is bounded, and a call fails once."""

from __future__ import annotations

import pytest

from qanat.core.errors import EngineDeadError, SlowClientError
from qanat.core.outputs import RequestOutput
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
    for i in range(MAX_UNREAD_OUTPUTS):
        assert (await stream.get()).new_token_ids == [i]
    with pytest.raises(SlowClientError):
        await stream.get()


async def test_the_first_error_is_the_one_that_is_told() -> None:
    stream = RequestStream("r", TOKENIZER, [request()])
    stream.fail(EngineDeadError("first"))
    stream.fail(EngineDeadError("second"))
    with pytest.raises(EngineDeadError, match="first"):
        await stream.get()
