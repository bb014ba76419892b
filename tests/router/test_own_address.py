"""How a decode engine reaches the router: looked up once for each engine, and never while others wait."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from qanat.router.disaggregated.own_address import OwnAddress
from qanat.router.http.errors import UpstreamUnreachable
from qanat.router.model import Endpoint
from tests.router.routing import run


def named(name: str = "d", host: str = "localhost") -> Endpoint:
    return Endpoint(name, host, 1234)


class Lookups:
    """The system's look-up, counted, held back, and refused at will."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: Any, *rest: Any, **named: Any) -> Any:
        self.hosts.append(host)
        assert self.gate.wait(60)
        if self.fails:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self._real(host, *rest, **named)


def test_the_address_is_this_machines_on_the_way_to_the_engine() -> None:
    async def look() -> None:
        assert await OwnAddress(9000, is_tls=False).url(named(host="127.0.0.1")) == "http://127.0.0.1:9000"
        assert await OwnAddress(9000, is_tls=True).url(named(host="::1")) == "https://[::1]:9000"

    run(look())


def test_others_go_on_while_a_name_is_looked_up_and_it_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look() -> None:
        lookups = Lookups(monkeypatch)
        lookups.gate.clear()
        own = OwnAddress(9000, is_tls=False)
        endpoint = named()
        asking = [asyncio.ensure_future(own.url(endpoint)) for _ in range(3)]
        leaving = asyncio.ensure_future(own.url(endpoint))
        while not lookups.hosts:
            await asyncio.sleep(0)
        leaving.cancel()
        lookups.gate.set()
        assert len(set(await asyncio.gather(*asking))) == 1
        assert await own.url(endpoint) == await asking[0]
        assert lookups.hosts == ["localhost"]
        own.forget(endpoint)
        await own.url(endpoint)
        assert len(lookups.hosts) == 2

    run(look())


def test_a_name_that_is_not_known_is_the_engines_fault_and_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look() -> None:
        lookups = Lookups(monkeypatch)
        lookups.fails = True
        own = OwnAddress(9000, is_tls=False)
        endpoint = named()
        with pytest.raises(UpstreamUnreachable, match="no way to localhost") as caught:
            await own.url(endpoint)
        assert caught.value.endpoint_name == "d" and not caught.value.is_sent
        lookups.fails = False
        assert (await own.url(endpoint)).startswith("http://")

    run(look())
