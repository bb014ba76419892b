"""Questions to the core, most of them about profiles, and their answers, which come in their own time."""

from __future__ import annotations

import asyncio
import itertools

from qanat.core.errors import QanatError, error_of
from qanat.core.profile import ProfileReport
from qanat.engine.messages import CallReply


class CoreCalls:
    """Matches replies of the core with those who wait for them."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[ProfileReport | None]] = {}

    def new(self) -> tuple[int, asyncio.Future[ProfileReport | None]]:
        """A number for a question, and where its answer comes."""
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number, future

    def take(self, reply: CallReply) -> None:
        """Hands an answer over; one that nobody waits for any more is dropped."""
        future = self._waiting.get(reply.call_id)
        if future is None or future.done():
            return
        if reply.error_code:
            future.set_exception(error_of(reply.error_code, reply.error_message))
        else:
            future.set_result(reply.report)

    def fail_all(self, error: QanatError) -> None:
        """No answer will come."""
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)
