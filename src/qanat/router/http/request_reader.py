"""Bytes of a client's connection into whole requests, or into the refusal of what cannot be one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import httptools

from qanat.core.errors import InvalidRequestError, QanatError
from qanat.router.http.limits import FrontLimits
from qanat.router.model import Call, Header

HeadCheck = Callable[[Call], None]
"""Raises a QanatError if a request of this head may not be made; its body is empty."""


class MalformedRequestError(InvalidRequestError):
    """What came is not an HTTP/1.1 request; the connection cannot be read on."""

    code = "malformed_request"


class HeadTooLargeError(InvalidRequestError):
    """Request line and headers are over the limit."""

    code = "headers_too_large"
    status = 431


class BodyTooLargeError(InvalidRequestError):
    """The body is over the limit."""

    code = "body_too_large"
    status = 413


class ExpectationError(InvalidRequestError):
    """An `Expect` header that is not 100-continue."""

    code = "expectation_failed"
    status = 417


class RequestTimeoutError(InvalidRequestError):
    """The client began a request and did not finish it."""

    code = "request_timeout"
    status = 408


@dataclass(slots=True)
class Incoming:
    """A whole request, or why there is none (`refusal`), after which nothing more can be read."""

    method: str = "GET"
    target: str = "/"
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""
    is_http_1_0: bool = False
    keeps_alive: bool = False
    refusal: QanatError | None = None


class RequestReader:
    """Callbacks of the parser; `feed` gives what they made of the bytes."""

    def __init__(self, limits: FrontLimits, check: HeadCheck | None = None) -> None:
        self._limits = limits
        self._check_call = check
        self._is_checked = False
        self._parser = httptools.HttpRequestParser(self)
        self._done: list[Incoming] = []
        self._refusal: QanatError | None = None
        self._url = b""
        self._headers: list[Header] = []
        self._num_head_bytes = 0
        self._body: list[bytes] = []
        self._num_body_bytes = 0
        self._framing = b""
        self._is_reframed = False
        self._expects_continue = False
        self.is_in_head = False
        self.is_in_body = False

    @property
    def is_in_message(self) -> bool:
        """A request has begun and is not complete."""
        return self.is_in_head or self.is_in_body

    @property
    def num_body_bytes(self) -> int:
        """Of the request that is being read; 0 between two."""
        return self._num_body_bytes if self.is_in_body else 0

    def take_expectation(self) -> bool:
        """Whether the client waits for a word before it sends the body; asked once."""
        expects = self._expects_continue
        self._expects_continue = False
        return expects and self.is_in_body

    def late(self) -> Incoming:
        """The refusal of a request that did not come to its end in time."""
        part = "head" if self.is_in_head else "body"
        return Incoming(
            refusal=RequestTimeoutError(f"the request's {part} did not arrive in time; send it again")
        )

    def feed(self, data: bytes) -> list[Incoming]:
        """The requests that `data` completes; a refusal is the last one ever."""
        self._done = []
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refusal = MalformedRequestError(f"this is not an HTTP/1.1 request: {error}")
        if self.is_in_head:
            # What has no end yet is not handed out by the parser, but kept.
            self._num_head_bytes += len(data)
            self._check_head()
        if self._refusal is not None:
            self._done.append(Incoming(refusal=self._refusal))
        return self._done

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # An upgrade may be declined (RFC 9110, 7.8). The parser takes it as agreed and reads no body: another
                # one gets the same message without the wish.
                self._parser = httptools.HttpRequestParser(self)
                self._is_reframed = True
                self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % self._framing)
                data = data[upgrade.args[0] :]
                if not data:
                    return

    def on_message_begin(self) -> None:
        """A request line begins."""
        if self._is_reframed:
            return
        self._url = b""
        self._headers = []
        self._num_head_bytes = 0
        self._body = []
        self._num_body_bytes = 0
        self._expects_continue = False
        self._is_checked = False
        self.is_in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        if not self._is_reframed:
            self._url += url
            self._num_head_bytes += len(url)
            self._check_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after a chunked body, which is dropped."""
        if self.is_in_head and not self._is_reframed:
            self._num_head_bytes += len(name) + len(value) + 4
            self._headers.append((name.lower(), value))
            self._check_head()

    def _check_head(self) -> None:
        if self._num_head_bytes > self._limits.max_head_bytes and self._refusal is None:
            message = (
                f"request line and headers have more than {self._limits.max_head_bytes} bytes; send fewer"
            )
            self._refusal = HeadTooLargeError(message)

    def on_headers_complete(self) -> None:
        """The head is whole: what it says of the body decides whether the body is read."""
        self.is_in_head = False
        self.is_in_body = True
        if self._is_reframed:
            return
        self._framing = b""
        num_hosts = 0
        for name, value in self._headers:
            if name == b"content-length":
                self._framing = b"content-length: %b\r\n" % value
                self._check_body(int(value))
            elif name == b"transfer-encoding":
                self._framing = b"transfer-encoding: chunked\r\n"
                if value.lower() != b"chunked":
                    self._refuse(MalformedRequestError("the only transfer-encoding taken is chunked"))
            elif name == b"expect":
                self._expects_continue = value.lower() == b"100-continue"
                if not self._expects_continue:
                    self._refuse(ExpectationError("the only expectation met is 100-continue"))
            elif name == b"host":
                num_hosts += 1
        if num_hosts != 1 and (num_hosts or self._parser.get_http_version() != "1.0"):
            self._refuse(MalformedRequestError("a request has exactly one Host header"))

    def _check_body(self, num_bytes: int) -> None:
        if num_bytes > self._limits.max_body_bytes:
            self._refuse(
                BodyTooLargeError(f"the body has more than {self._limits.max_body_bytes} bytes; send less")
            )
        elif num_bytes > self._limits.max_unchecked_bytes and not self._is_checked:
            self._is_checked = True
            self._check_right()

    def _check_right(self) -> None:
        if self._check_call is None or self._refusal is not None:
            return
        method = self._method if self._is_reframed else self._parser.get_method().decode("ascii")
        try:
            self._check_call(Call("", method, _origin_form(self._url), self._headers, b""))
        except QanatError as error:
            self._refuse(error)

    def _refuse(self, refusal: QanatError) -> None:
        if self._refusal is None:
            self._refusal = refusal

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._num_body_bytes += len(data)
        self._check_body(self._num_body_bytes)
        if self._refusal is None:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The request is whole, unless the parser stopped at a wish to upgrade."""
        if self._parser.should_upgrade() and not self._is_reframed:
            self._method = self._parser.get_method().decode("ascii")
            self._version = self._parser.get_http_version()
            return
        self.is_in_head = self.is_in_body = False
        if self._refusal is not None:
            return
        if self._is_reframed:
            method, version = self._method, self._version
        else:
            method = self._parser.get_method().decode("ascii")
            version = self._parser.get_http_version()
        body = self._body
        self._done.append(
            Incoming(
                method,
                _origin_form(self._url),
                self._headers,
                body[0] if len(body) == 1 else b"".join(body),
                version == "1.0",
                self._parser.should_keep_alive() and not (self._is_reframed and version == "1.0"),
            )
        )
        self._is_reframed = False


def _origin_form(url: bytes) -> str:
    """The target as a path, if it is written with a host, as clients of proxies do."""
    if not url.startswith(b"/") and b"://" in url:
        host_and_path = url.partition(b"://")[2]
        url = b"/" + host_and_path.partition(b"/")[2]
    return url.decode("latin-1")
