"""The server that is measured: how requests to it are written, and what it is asked beside the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from qanat.bench.client.client import Client, Reply
from qanat.deploy.verify.address import Address

READY_PAUSE_S = 1.0
SECRET_HEADERS = ("authorization", "x-api-key", "api-key", "cookie", "proxy-authorization")


@dataclass(frozen=True)
class Target:
    """Where requests go.

    Attributes:
        address: of the server.
        endpoint: path of the API that is measured.
        headers: sent with every request; they may hold a key, and are never shown.
    """

    address: Address
    endpoint: str
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)

    def post(self, body: Mapping[str, Any], path: str | None = None, request_id: str = "") -> bytes:
        """The bytes of a POST with a JSON body.

        Args:
            body: JSON.
            path: the endpoint's unless given.
            request_id: sent as X-Request-Id if there is one.
        """
        content = msgspec.json.encode(body)
        more = f"X-Request-Id: {request_id}\r\n" if request_id else ""
        return self._head("POST", self.endpoint if path is None else path, more, len(content)) + content

    def get(self, path: str) -> bytes:
        """The bytes of a GET."""
        return self._head("GET", path, "", None)

    def hide(self, text: str) -> str:
        """A text without the values of headers that may be keys: servers may repeat them in what they answer."""
        for name, value in self.headers.items():
            if name.lower() in SECRET_HEADERS and value:
                text = text.replace(value, "***").replace(value.rpartition(" ")[2], "***")
        return text

    def _head(self, method: str, path: str, more: str, length: int | None) -> bytes:
        lines = [
            f"{method} {self.address.path}{path} HTTP/1.1",
            f"Host: {self.address.authority}",
            "Accept-Encoding: identity",
        ]
        given = {name.lower() for name in self.headers}
        if "user-agent" not in given:
            lines.append("User-Agent: qanat-bench")
        if length is not None:
            lines += ["Content-Type: application/json"] if "content-type" not in given else []
            lines.append(f"Content-Length: {length}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n" + more + "\r\n").encode("ascii")


async def model_names(client: Client, target: Target) -> list[str]:
    """Names in /v1/models; empty if the server does not say."""
    value = json_of(await client.ask(target.get("/v1/models")))
    data = value.get("data") if isinstance(value, dict) else None
    return (
        [str(one["id"]) for one in data if isinstance(one, dict) and "id" in one]
        if isinstance(data, list)
        else []
    )


async def wait_until_ready(client: Client, target: Target, timeout_s: float) -> Reply:
    """Asks for the models until there is an answer with status 200; the last answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        reply = await client.ask(target.get("/v1/models"))
        if reply.is_ok or time.monotonic() + READY_PAUSE_S > deadline:
            return reply
        await asyncio.sleep(READY_PAUSE_S)


def json_of(reply: Reply) -> object:
    """The body of a good answer; None for another."""
    if not reply.is_ok:
        return None
    try:
        return msgspec.json.decode(reply.body)
    except msgspec.DecodeError:
        return None
