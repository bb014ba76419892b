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

MAX_SHOWN_CHARS = 80
"""Of an answer that makes no sense, so much is shown."""
MAX_MESSAGE_CHARS = 1000


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
        ConfigError: the address is neither, or the key cannot stand in a header.
    """

    def __init__(self, address: str, api_key: str | None = None, timeout_s: float = 600.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()):
                raise ConfigError("--api-key has characters that no header can carry.", param="--api-key")
            self._headers["Authorization"] = f"Bearer {api_key}"
        try:
            parts = urlsplit(address)
        except ValueError as error:
            raise ConfigError(f"--url {address}: {error}.", param="--url") from None
        if parts.scheme not in ("http", "https", "unix") or not (parts.netloc or parts.path):
            raise ConfigError(f"--url {address} is no address such as http://127.0.0.1:8000.", param="--url")
        path = parts.path.rstrip("/").removesuffix("/v1") if parts.scheme != "unix" else ""
        self._parts, self._base = parts, path

    def model_name(self) -> str:
        """The first model that the server names.

        Raises:
            ServerError: it cannot be reached, refuses, or is of another kind.
        """
        with self._request("GET", "/v1/models", None) as response:
            text = response.read().decode(errors="replace")
        try:
            return str(json.loads(text)["data"][0]["id"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise self._misfit(text) from None

    def stream(self, body: Mapping[str, Any]) -> Generator[Delta, None, None]:
        """The answer in pieces, as they come. Closing the iterator ends the request.

        Args:
            body: of a chat completion; it is streamed whatever it says.

        Raises:
            ServerError: the server cannot be reached, refuses, breaks off, or is of another kind.
        """
        with self._request("POST", "/v1/chat/completions", {**body, "stream": True}) as response:
            is_begun = False
            for line in response.lines():
                if line.strip() == "data: [DONE]":
                    return
                if line.startswith("data:"):
                    is_begun = True
                    yield from self._deltas(line.removeprefix("data:").strip())
                elif line and not is_begun and line[0] in "<{[":  # a page or an object, no stream of events
                    raise self._misfit(line)
        raise ServerError(f"{self._address} broke off the answer.")

    def _deltas(self, text: str) -> list[Delta]:
        """The pieces in the data of one event."""
        try:
            chunk = json.loads(text)
            if "error" in chunk:
                raise ServerError(_message(text))
            return [_delta(choice) for choice in chunk["choices"]]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self._misfit(text) from None

    def _misfit(self, text: str) -> ServerError:
        """For an answer that is not of the OpenAI API."""
        beginning = " ".join(text[:MAX_SHOWN_CHARS].split()) or "nothing"
        return ServerError(
            f"{self._address} does not speak the OpenAI API; its answer begins with: {beginning}"
        )

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Response:
        connection = self._connection()
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, self._base + path, payload, self._headers)
            response = connection.getresponse()
        except http.client.BadStatusLine as error:
            connection.close()
            what = "closed the connection" if isinstance(error, ConnectionError) else "speaks no HTTP"
            raise ServerError(f"{self._address} {what}; is it the right port?") from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            connection.close()
            raise ServerError(f"{self._address} cannot be reached: {error}.") from None
        answer = _Response(connection, response, self._address)
        if not 200 <= response.status < 300:
            with answer:
                text = answer.read().decode(errors="replace")
            raise ServerError(f"{self._address} answers {response.status}: {_message(text)}")
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        parts = self._parts
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, self._timeout_s)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        try:
            return kind(parts.hostname or "", parts.port, timeout=self._timeout_s)
        except ValueError as error:
            raise ConfigError(f"--url {self._address}: {error}", param="--url") from None
        except http.client.InvalidURL as error:
            raise ServerError(f"{self._address} cannot be reached: {error}.") from None


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
        """The whole body."""
        try:
            return self._response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self._address} broke off the answer: {error}.") from None

    def lines(self) -> Iterator[str]:
        """Lines as they come, without their ends."""
        try:
            for line in self._response:
                yield line.decode(errors="replace").rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self._address} broke off the answer: {error}.") from None


def _delta(choice: dict[str, Any]) -> Delta:
    """The piece in one choice of a chunk; TypeError, LookupError or AttributeError where it has another shape."""
    delta = choice["delta"]
    text = delta.get("content") or ""
    thinking = delta.get("reasoning") or delta.get("reasoning_content") or ""
    if not isinstance(text, str) or not isinstance(thinking, str):
        raise TypeError("a piece of an answer is text")
    return Delta(text, thinking, choice.get("finish_reason"))


def _message(text: str) -> str:
    """The message inside an error body, or the beginning of the body, as one line."""
    try:
        error = json.loads(text)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError, RecursionError):
        message = text
    return " ".join(str(message)[:MAX_MESSAGE_CHARS].split()) or "no reason given"
