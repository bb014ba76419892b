"""The order of a start on this host: engines, then the proxy, then watching them; and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from qanat.deploy.up.folder import DeployedNode, Folder
from qanat.deploy.up.unit import ScriptError, Tell, Unit, engine_unit, proxy_unit
from qanat.deploy.up.waiting import Patience, UnitError, Watch, until_all_answer


class Session:
    """What this host runs of a deployment.

    Attributes:
        engines: of this host's nodes, first ranks first.
        proxy: if it belongs to one of them.
        started: what this session started, in order; what ran before is not in it.
        healthy: names of units that `states` found well.

    Args:
        folder: that was rendered.
        nodes: that this host is.
        patience: with starts.
        tell: gets what a person wants to read.
    """

    def __init__(self, folder: Folder, nodes: Sequence[DeployedNode], patience: Patience, tell: Tell) -> None:
        ordered = sorted(nodes, key=lambda node: node.rank)
        self.engines = [engine_unit(folder, node) for node in ordered]
        proxy = folder.deployment.proxy
        is_here = proxy is not None and any(node.name == proxy.node for node in nodes)
        self.proxy = proxy_unit(folder, proxy) if proxy is not None and is_here else None
        self.started: list[Unit] = []
        self.healthy: set[str] = set()
        self._folder = folder
        self._own_names = {node.name for node in nodes}
        self._patience = patience
        self._tell = tell

    @property
    def units(self) -> list[Unit]:
        """All of this host, in the order of starting."""
        return [*self.engines, *([self.proxy] if self.proxy else [])]

    async def states(self) -> dict[str, str]:
        """By unit: "down", "starting" or "healthy"."""
        running = await asyncio.gather(*(unit.is_running() for unit in self.units))
        ready = await asyncio.gather(*(unit.is_ready() for unit in self.units))
        states = {
            unit.name: "down" if not runs else "healthy" if answers else "starting"
            for unit, runs, answers in zip(self.units, running, ready, strict=True)
        }
        self.healthy = {name for name, state in states.items() if state == "healthy"}
        return states

    async def start(self) -> None:
        """Starts everything of this host and waits until it is ready.

        Raises:
            ScriptError: a script refuses.
            UnitError: something does not become ready.
        """
        for unit in self.engines:
            await self._start_one(unit)
        await _all_or_first_error([self._until_ready(unit) for unit in self.engines])
        if self.proxy is None:
            return
        await self._wait_for_others(self.proxy)
        await self._start_one(self.proxy)
        await self._until_ready(self.proxy)

    async def watch(self) -> None:
        """Waits until anything of this host ends.

        Raises:
            UnitError: which one.
        """
        await _all_or_first_error([Watch(unit, self._tell).until_gone() for unit in self.units])

    async def stop(self, units: Sequence[Unit]) -> list[str]:
        """Stops units, last started first.

        Returns:
            What went wrong; nothing if all are stopped.
        """
        faults = []
        for unit in reversed(units):
            try:
                await unit.run_stop(self._tell)
            except ScriptError as error:
                faults.append(str(error))
                continue
            if await unit.is_running():
                faults.append(f"{unit.name}: it still runs after {unit.stop}")
        return faults

    async def _start_one(self, unit: Unit) -> None:
        if unit.name in self.healthy:
            await self._check_settings(unit)
            return
        if not await unit.is_running():
            # Before the script: one that is interrupted may have started it already.
            self.started.append(unit)
        await unit.run_start(self._tell, self._patience.ready_s)

    async def _check_settings(self, unit: Unit) -> None:
        """Its script refuses where what runs is not what the folder says."""
        said: list[str] = []
        try:
            await unit.run_start(said.append, self._patience.ready_s)
        except ScriptError:
            for line in said:
                self._tell(line)
            raise
        self._tell(f"{unit.name}: running already and healthy: {unit.ready_url}")

    async def _until_ready(self, unit: Unit) -> None:
        if unit.name in self.healthy:
            return
        seconds = await Watch(unit, self._tell).until_ready(self._patience)
        self._tell(f"{unit.name}: ready after {seconds:.0f} s: {unit.ready_url}")

    async def _wait_for_others(self, proxy: Unit) -> None:
        urls = [
            self._folder.url(node.name, node.port or 0, node.ready.path)
            for node in self._folder.deployment.nodes
            if node.ready is not None and node.name not in self._own_names
        ]
        missing = await until_all_answer(urls, self._patience.ready_s, self._tell) if urls else []
        if missing:
            raise UnitError(proxy, f"not started, as engines do not answer: {', '.join(missing)}", ())


async def _all_or_first_error(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all; the first error ends the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
