"""A host's line to the head, from its hello to its end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import msgspec
import zmq
import zmq.asyncio

from qanat.core.addresses import resolved
from qanat.core.errors import ConfigError, EngineDeadError
from qanat.core.printable import quoted
from qanat.engine.remote.hosts import ADDRESS_FLAG, KEY_ADVICE
from qanat.engine.remote.identity import HostReport
from qanat.engine.remote.messages import (
    BEAT_S,
    SILENCE_S,
    Beat,
    Farewell,
    FromHost,
    Hello,
    Refusal,
    ToHost,
    Welcome,
)
from qanat.engine.remote.quiet import MAX_TEXT
from qanat.engine.remote.sockets import Connections, LinkEvent, endpoint, host_socket, in_one, in_pieces

LINGER_MS = 500
MAX_FAILURES = 3
LAST_NEWS_S = 0.2


class HeadLostError(Exception):
    """The head is gone.

    Args:
        reason: what became of it, after "The head".
        may_return: it may only have been out of reach for a while.
    """

    def __init__(self, reason: str, *, may_return: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_return = may_return


class HeadLine:
    """One connection to the head. To be made and closed within an event loop.

    Args:
        address, port: of the head.

    Raises:
        ConfigError: the cluster's key is too short, or the address stands for nothing.
    """

    def __init__(self, address: str, port: int) -> None:
        self._place = f"{address}:{port}"
        self._decoder = msgspec.msgpack.Decoder(ToHost)
        self._heard_s = time.monotonic()
        self._context = zmq.asyncio.Context()
        try:
            self._socket = host_socket(self._context)
            self._connections = Connections(self._socket)
            self._socket.connect(endpoint(resolved(address), port))
        except OSError as error:
            self._context.destroy(linger=0)
            raise ConfigError(
                f"{ADDRESS_FLAG} {address}: {error.strerror or error}.", param=ADDRESS_FLAG
            ) from None
        except BaseException:
            self._context.destroy(linger=0)
            raise

    async def join(self, report: HostReport, timeout_s: float) -> HostReport:
        """Says hello and waits for the head's answer, also until there is a head.

        Args:
            report: this process's own.
            timeout_s: for all of it.

        Returns:
            The head's report.

        Raises:
            ConfigError: the head refuses, or cannot be talked to with this key.
            EngineDeadError: there is no head within the time.
        """
        await self.send(Hello(report))
        answer = asyncio.create_task(self._answer())
        trouble = asyncio.create_task(self._obstacle())
        try:
            await asyncio.wait({answer, trouble}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if trouble.done():
                raise ConfigError(f"The head at {self._place} cannot be talked to: {trouble.result()}.")
        finally:
            answer.cancel()
            trouble.cancel()
            await asyncio.gather(answer, trouble, return_exceptions=True)
        raise EngineDeadError(
            f"No head answered at {self._place} within {timeout_s:.0f} s (at most --init-timeout-s). It is the same "
            "command without --headless, on the host that has this address."
        )

    async def serve(self, handle: Callable[[ToHost, bytes], Awaitable[None]]) -> None:
        """Hears the head until it is gone.

        Args:
            handle: is given every message but beats, with its payload.

        Raises:
            HeadLostError: always, in the end.
        """
        tasks = [asyncio.create_task(task) for task in (self._hear(handle), self._beat(), self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, message: FromHost, payload: bytes = b"") -> None:
        """Queues a message for the head."""
        frames = [msgspec.msgpack.encode(message), *in_pieces(payload)]
        with contextlib.suppress(zmq.ZMQError):  # it is gone; that is noticed elsewhere
            await self._socket.send_multipart(frames, flags=zmq.NOBLOCK)

    async def say_farewell(self, reason: str) -> None:
        """Tells the head that this process ends, and why, after "its host"."""
        await self.send(Farewell(reason))

    async def close(self) -> None:
        """Ends the connection, once what was sent is on its way, if that does not take long."""
        self._connections.close()
        self._context.destroy(linger=LINGER_MS)

    async def _receive(self) -> tuple[ToHost, bytes]:
        first, *pieces = await self._socket.recv_multipart()
        self._heard_s = time.monotonic()
        return self._decoder.decode(first), in_one(pieces)

    async def _answer(self) -> HostReport:
        while True:
            message, _ = await self._receive()
            if isinstance(message, Welcome):
                return message.report
            if isinstance(message, Refusal | Farewell):
                raise ConfigError(
                    f"The head at {self._place} refuses this process. {quoted(message.reason, MAX_TEXT)}"
                )

    async def _obstacle(self) -> str:
        """Waits until it is plain that there can be no connection; returns why."""
        num_failures = 0
        while True:
            event = await self._connections.next()
            if event is LinkEvent.STRANGER:
                return str(event.value)
            if event is LinkEvent.ONLY_ONE_KEY:
                return f"{event.value} ({KEY_ADVICE})"
            # A head does not say that it cannot read what it is sent. One that has just ended looks the same, once.
            num_failures += event is LinkEvent.BROKEN_OFF
            if self._connections.is_encrypted and num_failures == MAX_FAILURES:
                return f"{LinkEvent.OTHER_KEY.value} ({KEY_ADVICE})"

    async def _hear(self, handle: Callable[[ToHost, bytes], Awaitable[None]]) -> None:
        while True:
            message, payload = await self._receive()
            if isinstance(message, Refusal):
                raise HeadLostError(
                    f"says: {quoted(message.reason, MAX_TEXT)}", may_return=message.may_return
                )
            if isinstance(message, Farewell):
                raise HeadLostError(f"has ended: {quoted(message.reason, MAX_TEXT)}", may_return=False)
            if not isinstance(message, Beat):
                await handle(message, payload)

    async def _beat(self) -> None:
        while time.monotonic() - self._heard_s <= SILENCE_S:
            await self.send(Beat())
            await asyncio.sleep(BEAT_S)
        raise HeadLostError(f"has said nothing for {SILENCE_S:.0f} s.", may_return=True)

    async def _watch(self) -> None:
        while await self._connections.next() is not LinkEvent.CLOSED:
            continue
        await asyncio.sleep(LAST_NEWS_S)  # what it said before may still be on its way
        # A head that gave this host up for its silence closes the connection too, when that reaches this host again.
        was_silent = time.monotonic() - self._heard_s > 3 * BEAT_S
        raise HeadLostError("has hung up.", may_return=was_silent)
