"""Serves the page's files, with headers under which a browser runs nothing but them and asks nobody but this server."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from qanat.server.http import header

FOLDER = Path(__file__).with_name("static")
INDEX = "index.html"
PREFIX = "/web/"
"""Below which files other than the index lie; the page names them relative to itself, as proxies add prefixes."""

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Trusted types make browsers refuse to read text as HTML: an answer of the model cannot become markup."""

HEADERS = [
    (b"cache-control", b"no-cache"),  # kept, and asked about each time: an update shows at once
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]


@dataclass(frozen=True)
class StaticFile:
    """One file as it is sent.

    Attributes:
        body: its bytes.
        media_type: what they are.
        etag: names the bytes; the same in every process that serves them.
    """

    body: bytes
    media_type: str
    etag: str


def read_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """All files of the page by the path that they are served under; files of other kinds are left out."""
    files: dict[str, StaticFile] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in MEDIA_TYPES:
            continue
        body = path.read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        name = path.relative_to(folder).as_posix()
        served = "/" if name == INDEX else PREFIX + name
        files[served] = StaticFile(body, MEDIA_TYPES[path.suffix], etag)
    return files


class WebPage:
    """Answers GET and HEAD of the page's files, and leaves everything else to the application.

    It stands before the gate: the files are in every copy of Qanat, so that a key would protect nothing, and somebody
    without one needs the page to enter it.

    Args:
        app: what answers all other requests.
        files: by path.
    """

    def __init__(self, app: ASGIApp, files: dict[str, StaticFile]) -> None:
        self._app = app
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        file = self._files.get(scope["path"]) if is_read else None
        if file is None:
            await self._app(scope, receive, send)
            return
        headers = [*HEADERS, (b"etag", file.etag.encode())]
        if _names(header(scope, b"if-none-match") or "", file.etag):
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        headers.append((b"content-type", file.media_type.encode()))
        headers.append((b"content-length", str(len(file.body)).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = file.body if scope["method"] == "GET" else b""
        await send({"type": "http.response.body", "body": body})


def with_web_page(app: ASGIApp, *, is_on: bool) -> ASGIApp:
    """The application with the page in front, or itself if the page is switched off."""
    return WebPage(app, read_files()) if is_on else app


def _names(condition: str, etag: str) -> bool:
    """True if an If-None-Match header names this version; proxies that compress mark theirs as weak."""
    named = [one.strip().removeprefix("W/") for one in condition.split(",")]
    return etag in named or "*" in named
