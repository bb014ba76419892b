"""A small client of /v1/chat/completions over TCP or a Unix socket: standard library only, streaming."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from qanat.core.errors import ConfigError, QanatError


class ServerError(QanatError):
    """The server answered with an error, or not at all."""

    code = "server_error"


@dataclass(frozen=True)
class Delta:
    """A piece of an answer.

    Attributes:
        text: of the answer itself.
        thinking: of the reasoning before it.
        finish_reason: set on the last piece.
    """

    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ChatClient:
    """Talks to one server.

    Args:
        address: http:// or https:// with host and port, or unix: and a socket's path.
        api_key: sent as a bearer token if given.
        timeout_s: how long the server may stay silent.

    Raises:
        ConfigError: the address is neither.
    """

    def __init__(self, address: str, api_key: str | None = None, timeout_s: float = 600.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https", "unix") or not (parts.netloc or parts.path):
            raise ConfigError(f"--url {address} is no address such as http://127.0.0.1:8000.", param="--url")
        path = parts.path.rstrip("/").removesuffix("/v1") if parts.scheme != "unix" else ""
        self._parts, self._base = parts, path

    def model_name(self) -> str:
        """The first model that the server names.

        Raises:
            ServerError: it cannot be reached or refuses.
        """
        with self._request("GET", "/v1/models", None) as response:
            return str(json.loads(response.read())["data"][0]["id"])

    def stream(self, body: Mapping[str, Any]) -> Generator[Delta, None, None]:
        """The answer in pieces, as they come. Closing the iterator ends the request.

        Args:
            body: of a chat completion; it is streamed whatever it says.

        Raises:
            ServerError: the server cannot be reached, refuses, or breaks off.
        """
        with self._request("POST", "/v1/chat/completions", {**body, "stream": True}) as response:
            for data in _events(response):
                if data == "[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise ServerError(str(chunk["error"].get("message", chunk["error"])))
                for choice in chunk["choices"]:
                    delta = choice["delta"]
                    thinking = delta.get("reasoning") or delta.get("reasoning_content") or ""
                    yield Delta(delta.get("content") or "", thinking, choice.get("finish_reason"))
        raise ServerError(f"{self._address} broke off the answer.")

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Response:
        connection = self._connection()
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, self._base + path, payload, self._headers)
            response = connection.getresponse()
        except OSError as error:
            connection.close()
            raise ServerError(f"{self._address} cannot be reached: {error}.") from None
        if response.status >= 400:
            text = response.read().decode(errors="replace")
            connection.close()
            raise ServerError(f"{self._address} answers {response.status}: {_message(text)}")
        return _Response(connection, response, self._address)

    def _connection(self) -> http.client.HTTPConnection:
        parts = self._parts
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, self._timeout_s)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        try:
            return kind(parts.hostname or "", parts.port, timeout=self._timeout_s)
        except ValueError as error:
            raise ConfigError(f"--url {self._address}: {error}", param="--url") from None


class _Response:
    """A response whose connection closes with it."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, address: str
    ) -> None:
        self._connection, self._response, self._address = connection, response, address

    def __enter__(self) -> _Response:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(self) -> bytes:
        return self._response.read()

    def lines(self) -> Iterator[str]:
        """Lines as they come, without their ends."""
        try:
            for line in self._response:
                yield line.decode().rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self._address} broke off the answer: {error}.") from None


def _events(response: _Response) -> Iterator[str]:
    """Data of server-sent events; comments and other fields are passed over."""
    for line in response.lines():
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _message(text: str) -> str:
    """The message inside an error body, or the body."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or "no reason given"
