"""The access log: one JSON line for each request, written a little later so that no request waits for a disk."""

from __future__ import annotations

import asyncio
import datetime
import sys
from typing import BinaryIO

import msgspec

from qanat.core.errors import ConfigError
from qanat.router.access_log import Record
from qanat.router.model import Call

OFF, STANDARD_OUTPUT = "off", "-"
FLUSH_S = 0.2


class Line(msgspec.Struct, omit_defaults=True):
    """The fields of a line; those from `key` on are left out where nothing is known."""

    time: str
    request_id: str
    client: str
    method: str
    path: str
    status: int
    retries: int
    continued: int
    wait_s: float
    duration_s: float
    bytes: int
    stream: bool
    key: str = ""
    model: str | None = None
    error: str = ""
    endpoint: str = ""
    prefill_endpoint: str = ""
    reason: str = ""
    first_byte_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


_ENCODER = msgspec.json.Encoder()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AccessLog:
    """Collects lines and writes them every fifth of a second. Belongs to one event loop.

    Args:
        where: a file, which is appended to; "-" for standard output; "off" for none.

    Raises:
        ConfigError: the file cannot be opened.
    """

    def __init__(self, where: str) -> None:
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_own = where not in (OFF, STANDARD_OUTPUT)
        self._file: BinaryIO | None = None
        if where == STANDARD_OUTPUT:
            self._file = sys.stdout.buffer
        elif where != OFF:
            try:
                self._file = open(where, "ab")  # noqa: SIM115 - closed in close
            except OSError as error:
                raise ConfigError(
                    f"--access-log {where}: cannot be written: {error.strerror or error}.",
                    param="--access-log",
                ) from None

    def write(self, record: Record, call: Call, status: int, num_bytes: int, duration_s: float) -> None:
        """Notes a request that has ended; 499 is the status of one whose client left before an answer began."""
        if self._file is None:
            return
        line = Line(
            _now(),
            record.request_id,
            call.client_host,
            call.method,
            call.path,
            status,
            record.num_retries,
            record.num_continued,
            round(record.wait_s, 4),
            round(duration_s, 4),
            num_bytes,
            call.is_stream,
            call.key_hash,
            call.model,
            record.error,
            record.endpoint,
            record.prefill_endpoint,
            record.reason,
            None if record.first_byte_s is None else round(record.first_byte_s, 4),
            record.num_prompt_tokens,
            record.num_output_tokens,
        )
        self._lines.append(_ENCODER.encode(line))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Writes what is collected; a disk that is full loses lines, not requests."""
        self._timer = None
        if self._file is None or not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            self._file.write(b"\n".join(lines) + b"\n")
            self._file.flush()
        except (OSError, ValueError):
            self._lines.clear()

    def close(self) -> None:
        """Writes the rest."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
        if self._file is not None and self._is_own:
            self._file.close()
        self._file = None
