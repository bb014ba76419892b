"""One thing that is started: an engine or the proxy. Its scripts, its health, and whether it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qanat.deploy.up.folder import DeployedNode, DeployedProxy, Folder
from qanat.deploy.verify.address import Address, read_address
from qanat.deploy.verify.exchange import Exchange, ExchangeError

PROXY = "proxy"
PROBE_TIMEOUT_S = 5.0
TOOL_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 180.0
GRACE_S = 10.0
"""A start script that is interrupted gets so long to end by itself: what it starts is then known to its stop script."""
MAX_LINE_BYTES = 2**20
Tell = Callable[[str], None]


class ScriptError(Exception):
    """A script failed; the text says which and how. What it said has been told already."""


@dataclass(frozen=True)
class Unit:
    """An engine of this host, or the proxy.

    Attributes:
        name: the node's, or "proxy".
        start: script that starts it, absolute.
        stop: script that stops it, absolute.
        log: link to the log of its newest run.
        ready_url: answers 200 once it is ready; that of its group's first node where it answers no requests itself.
        container: its name; None where it runs without one.
        pid_file: of a process without a container.
        answers_itself: whether `ready_url` is its own.
    """

    name: str
    start: Path
    stop: Path
    log: Path
    ready_url: str
    container: str | None
    pid_file: Path
    answers_itself: bool = True

    async def run_start(self, tell: Tell, timeout_s: float) -> None:
        """Starts it, or leaves it if it runs; returns without waiting until it is ready.

        Raises:
            ScriptError: the script says that it cannot be, or takes too long, as for an image that is fetched.
        """
        await self._run([str(self.start), "--no-wait"], tell, timeout_s)

    async def run_stop(self, tell: Tell) -> None:
        """Stops it; nothing to stop is well too.

        Raises:
            ScriptError: the script failed or took too long.
        """
        await self._run([str(self.stop)], tell, STOP_TIMEOUT_S)

    async def _run(self, command: list[str], tell: Tell, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                code = await run_script(command, tell)
        except TimeoutError:
            raise ScriptError(f"{self.name}: {command[0]} did not end within {timeout_s:g} s") from None
        if code != 0:
            raise ScriptError(f"{self.name}: {command[0]} ended with exit code {code}")

    async def is_running(self) -> bool:
        """Whether its container or process is there; True where docker does not say in time."""
        if self.container is None:
            return is_process_running(self.pid_file)
        command = ("docker", "container", "inspect", "--format", "{{.State.Running}}", self.container)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError:
            return False
        try:
            async with asyncio.timeout(TOOL_TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            return True
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return output.strip() == b"true"

    async def is_ready(self) -> bool:
        """Whether it answers as ready."""
        return await answers(self.ready_url)


def engine_unit(folder: Folder, node: DeployedNode) -> Unit:
    """The engine of a node."""
    first = next(
        one
        for one in folder.deployment.nodes
        if (one.role, one.instance) == (node.role, node.instance) and one.ready is not None
    )
    assert first.ready is not None
    return Unit(
        name=node.name,
        start=folder.path / node.scripts.start,
        stop=folder.path / node.scripts.stop,
        log=folder.logs / node.log,
        ready_url=folder.url(first.name, first.port or 0, first.ready.path),
        container=node.container,
        pid_file=folder.logs / f"{node.name}.pid",
        answers_itself=node.ready is not None,
    )


def proxy_unit(folder: Folder, proxy: DeployedProxy) -> Unit:
    """The proxy."""
    return Unit(
        name=PROXY,
        start=folder.path / proxy.scripts.start,
        stop=folder.path / proxy.scripts.stop,
        log=folder.logs / proxy.log,
        ready_url=folder.url(proxy.node, proxy.port, proxy.ready.path),
        container=proxy.container,
        pid_file=folder.logs / f"{PROXY}.pid",
    )


async def answers(url: str) -> bool:
    """Whether a URL answers 200."""
    root, slash, path = url.partition("://")[2].partition("/")
    address: Address = read_address(f"http://{root}")
    try:
        answer = await Exchange(address).request("GET", slash + path, timeout_s=PROBE_TIMEOUT_S)
    except ExchangeError:
        return False
    return answer.status == 200


async def run_script(command: list[str], tell: Tell) -> int:
    """Runs a script in a session of its own, so that Ctrl-C at the terminal reaches us alone.

    Args:
        command: the script and its arguments.
        tell: gets each line that it writes.

    Returns:
        Its exit code.

    Raises:
        ScriptError: it cannot be run.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
    except OSError as error:
        raise ScriptError(f"{command[0]} cannot be run: {error.strerror or error}") from None
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            tell(line.decode(errors="replace").rstrip())
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Waits for an interrupted script for a while, then ends it and what it started."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
                return


def is_process_running(pid_file: Path) -> bool:
    """Whether the process in a pid file of the scripts runs: its number, and when it began in clock ticks."""
    try:
        pid, began, *_ = pid_file.read_text(encoding="ascii").split()
        fields = Path(f"/proc/{int(pid)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return fields[0] != "Z" and fields[19] == began
