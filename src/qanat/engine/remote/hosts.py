"""The head's view of the other hosts: takes them in, hears them, and notices when one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import zmq
import zmq.asyncio

from qanat.core.addresses import interface_of, own_addresses, resolved
from qanat.core.comparing import differences
from qanat.core.errors import ConfigError, EngineDeadError
from qanat.core.printable import quoted
from qanat.engine.remote.identity import HostReport, replica_names, report_of
from qanat.engine.remote.messages import (
    BEAT_S,
    SILENCE_S,
    Beat,
    CoreDown,
    CoreSaid,
    CoreUp,
    Farewell,
    FromHost,
    Hello,
    Refusal,
    Stacks,
    ToHost,
    Welcome,
)
from qanat.engine.remote.quiet import MAX_TEXT, Quiet
from qanat.engine.remote.sockets import Connections, LinkEvent, endpoint, head_socket, in_one, in_pieces

logger = logging.getLogger(__name__)

ADDRESS_FLAG = "--data-parallel-address"
PORT_FLAG = "--data-parallel-rpc-port"
MAX_REFUSALS_TOLD = 10
"""So many are logged within `QUIET_S`: all hosts of a service may have the wrong flags."""
LINGER_MS = 1000
MAX_REFUSALS = 5
"""So many are named if hosts are missing at last."""
KEY_ADVICE = "QANAT_CLUSTER_KEY must be the same for every process of the service"


class CoreListener(Protocol):
    """Who is told of a core on another host."""

    def hear(self, message: CoreUp | CoreSaid | CoreDown | Stacks, payload: bytes) -> None:
        """The host says something about it."""

    def lose_host(self, reason: str) -> None:
        """The host is gone, and so is the core."""


@dataclass
class Host:
    """One that takes part.

    Attributes:
        identity: of its connection.
        report: what it told of itself.
        heard_s: when it was last heard of, in monotonic seconds.
        listeners: by the lives of its cores.
    """

    identity: bytes
    report: HostReport
    heard_s: float
    listeners: dict[int, CoreListener] = field(default_factory=dict)


class RemoteHosts:
    """The head's socket, and the hosts behind it. To be made and closed within an event loop.

    Args:
        address, port: to listen on; a port of 0 takes a free one.
        replicas: those that are to come from other hosts.
        traits: what must be equal there.
        is_return_wished: whether hosts that were lost are taken in again.

    Attributes:
        port: that it listens on.

    Raises:
        ConfigError: it cannot listen there, or the cluster's key is too short.
    """

    def __init__(
        self,
        address: str,
        port: int,
        replicas: Sequence[int],
        traits: dict[str, str],
        *,
        is_return_wished: bool = True,
    ) -> None:
        self._replicas = tuple(replicas)
        self._is_return_wished = is_return_wished
        self._hosts: dict[bytes, Host] = {}
        self._refusals: deque[str] = deque(maxlen=MAX_REFUSALS)
        self._quiet_refusals = Quiet(MAX_REFUSALS_TOLD)
        self._quiet_rubbish = Quiet()
        self._lost: dict[int, str] = {}
        self._lives = itertools.count(1)
        self._changed = asyncio.Event()
        self._decoder = msgspec.msgpack.Decoder(FromHost)
        self._context = zmq.asyncio.Context()
        try:
            self._socket = head_socket(self._context)
            self._connections = Connections(self._socket)
            self.port = _bind(self._socket, address, port)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        numeric = resolved(address)
        self._report = report_of((), numeric, interface_of(numeric), traits)
        self._place = f"{address}:{self.port}"
        self._failure = ""
        self._watching = asyncio.create_task(self._watch())
        self._tasks = [asyncio.create_task(task) for task in (self._receive(), self._beat())]
        for task in (self._watching, *self._tasks):
            task.add_done_callback(self._notice_end)

    async def host_of(self, replica: int, timeout_s: float | None) -> Host:
        """The host of a replica, once it takes part.

        Args:
            replica: its data-parallel rank.
            timeout_s: wait no longer than this; None waits as long as it takes.

        Raises:
            EngineDeadError: it did not come, in which case all that are missing are named, or can come no more.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while (host := self._find(replica)) is None:
                    if self._failure:
                        raise EngineDeadError(f"Replica {replica} {self._failure}.")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise EngineDeadError(self._missing(timeout_s or 0.0)) from None
        return host

    def new_life(self, host: Host, listener: CoreListener) -> int:
        """A number for a core that is to be started there; its listener hears of it until `end_life`."""
        life = next(self._lives)
        host.listeners[life] = listener
        return life

    async def send(self, host: Host, message: ToHost, payload: bytes = b"") -> None:
        """Queues a message for a host; if it has just gone, its listeners are told instead."""
        frames = [host.identity, msgspec.msgpack.encode(message), *in_pieces(payload)]
        try:
            await self._socket.send_multipart(frames, flags=zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                self._lose(host, "has hung up")

    async def close(self, reason: str = "The head is shutting down.") -> None:
        """Tells all hosts, and ends. Safe to call twice."""
        tasks = [self._watching, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._context.closed:
            return
        try:
            for host in list(self._hosts.values()):
                await self.send(host, Farewell(reason))
                self._lose(host, "is not needed any more")
        finally:
            self._connections.close()
            self._context.destroy(linger=LINGER_MS)

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        """A task ends only when it is cancelled, or by a defect, after which nobody may wait for what it did."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if task is self._watching:
            logger.error("Attempts to join that fail are not told of any more.", exc_info=error)
            return
        logger.error("The line to the hosts at %s failed.", self._place, exc_info=error)
        self._failure = (
            f"cannot be talked to, as the head's end of the line failed ({type(error).__name__}: {error})"
        )
        for other in self._tasks:
            other.cancel()
        for host in list(self._hosts.values()):
            self._lose(host, self._failure)
        self._changed.set()

    async def _receive(self) -> None:
        while True:
            identity, *frames = await self._socket.recv_multipart()
            try:
                message = self._decoder.decode(frames[0])
            except (msgspec.MsgspecError, IndexError, RecursionError):
                if self._quiet_rubbish.may_tell():
                    logger.warning(
                        "Something that is no host of this service has sent a message to %s.", self._place
                    )
                continue
            await self._take(identity, message, in_one(frames[1:]))

    async def _take(self, identity: bytes, message: FromHost, payload: bytes) -> None:
        host = self._hosts.get(identity)
        if isinstance(message, Hello):
            await self._greet(identity, message.report)
        elif host is None:
            if not isinstance(message, Farewell):
                reason = (
                    f"The head at {self._place} has given this connection up, as it was silent for too long."
                )
                await self._answer(identity, Refusal(reason, may_return=True))
        elif isinstance(message, Farewell):
            self._lose(host, quoted(message.reason, MAX_TEXT))
        else:
            host.heard_s = time.monotonic()
            if not isinstance(message, Beat) and (listener := host.listeners.get(message.life)):
                listener.hear(message, payload)

    async def _greet(self, identity: bytes, report: HostReport) -> None:
        for host in list(self._hosts.values()):
            if host.report.process_id == report.process_id:
                self._lose(host, "has connected anew")
        if obstacle := quoted(self._obstacle(report), MAX_TEXT):
            if self._quiet_refusals.may_tell():
                logger.warning("Refused as a host of this service: %s. %s", report.name, obstacle)
            self._note_refusal(f"{report.name}: {obstacle}")
            await self._answer(identity, Refusal(obstacle))
            return
        self._hosts[identity] = Host(identity, report, time.monotonic())
        logger.info("%s joined: %s.", replica_names(report.replicas).capitalize(), report.name)
        await self._answer(identity, Welcome(self._report))
        self._changed.set()

    def _obstacle(self, report: HostReport) -> str:
        """Why such a host cannot take part, as sentences; "" if it can."""
        if unlike := differences(self._report.traits, report.traits):
            return f"It does not match the head: it has {', '.join(unlike)}."
        if not report.replicas:
            return "It has no replicas."
        if strangers := [replica for replica in report.replicas if replica not in self._replicas]:
            return (
                f"The head expects {replica_names(self._replicas)} from other hosts, and not "
                f"{replica_names(strangers)}: see --data-parallel-start-rank and --data-parallel-size-local there."
            )
        for replica in report.replicas:
            if (host := self._find(replica)) is not None:
                return f"{replica_names([replica]).capitalize()} is there already: {host.report.name}."
            if replica in self._lost and not self._is_return_wished:
                return (
                    f"{replica_names([replica]).capitalize()} was lost: its host {self._lost[replica]}. The head takes "
                    "none in again without --restart-engine."
                )
        return ""

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for host in list(self._hosts.values()):
                if time.monotonic() - host.heard_s > SILENCE_S:
                    self._lose(host, f"has said nothing for {SILENCE_S:.0f} s")
                else:
                    await self.send(host, Beat())

    async def _watch(self) -> None:
        quiet = Quiet()
        while True:
            event = await self._connections.next()
            if event is not LinkEvent.CLOSED:
                text = f"something that tried to join could not, as {event.value} ({KEY_ADVICE})"
                self._note_refusal(text + ".")
                if quiet.may_tell():
                    logger.warning("At %s, %s.", self._place, text)

    async def _answer(self, identity: bytes, message: ToHost) -> None:
        with contextlib.suppress(zmq.ZMQError):  # it has gone meanwhile
            await self._socket.send_multipart([identity, msgspec.msgpack.encode(message)], flags=zmq.NOBLOCK)

    def _note_refusal(self, text: str) -> None:
        if text not in self._refusals:
            self._refusals.append(text)

    def _find(self, replica: int) -> Host | None:
        return next((host for host in self._hosts.values() if replica in host.report.replicas), None)

    def _lose(self, host: Host, reason: str) -> None:
        if self._hosts.pop(host.identity, None) is None:
            return
        self._lost |= dict.fromkeys(host.report.replicas, reason)
        for listener in list(host.listeners.values()):
            listener.lose_host(reason)

    def _missing(self, timeout_s: float) -> str:
        missing = [replica for replica in self._replicas if self._find(replica) is None]
        text = (
            f"{replica_names(missing).capitalize()} did not join at {self._place} within {timeout_s:.0f} s (at most "
            "--init-timeout-s)."
        )
        if self._refusals:
            return f"{text} Refused: {' '.join(self._refusals)}"
        return f"{text} Start them on their hosts: the same command with --headless and --data-parallel-start-rank."


def _bind(socket: zmq.asyncio.Socket, address: str, port: int) -> int:
    """Listens; returns the port.

    Raises:
        ConfigError: that cannot be.
    """
    try:
        socket.bind(endpoint(resolved(address), port))
    except (OSError, zmq.ZMQError) as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"Port {port} of {address} is taken by another program; choose another one, the same for every process "
                f"of the service: {PORT_FLAG}.",
                param=PORT_FLAG,
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConfigError(
                f"{PORT_FLAG} {port} needs rights that this user does not have; choose one from 1024 on.",
                param=PORT_FLAG,
            ) from None
        found = [f"{own} ({interface})" for own, interface in own_addresses().items()]
        raise ConfigError(
            f"{ADDRESS_FLAG} {address} is not an address of this host, which is the first one as it is not --headless. "
            f"It has: {', '.join(found) or 'none that could be found'}.",
            param=ADDRESS_FLAG,
        ) from None
    return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
