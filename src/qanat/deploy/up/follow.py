"""Reads what is new in a log, whatever becomes of the file."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

MAX_READ_BYTES = 4 * 2**20
NUM_LAST_LINES = 20
MAX_LINE_CHARS = 500


class Follower:
    """Follows a log by name: a link that points elsewhere, or a file that was cut, is read from its beginning.

    Attributes:
        last: the last lines, without their ends.

    Args:
        path: of the log; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.last: deque[str] = deque(maxlen=NUM_LAST_LINES)
        self._path = path
        self._place = 0
        self._file: tuple[int, int] | None = None
        self._rest = b""

    def read(self) -> list[str]:
        """Lines that were completed since the last call; progress bars end at a carriage return too."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._place:
                    self._file, self._place, self._rest = (status.st_dev, status.st_ino), 0, b""
                file.seek(self._place)
                content = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        self._place += len(content)
        *lines, self._rest = (self._rest + content).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-MAX_READ_BYTES:]
        texts = [line.decode(errors="replace").rstrip() for line in lines]
        self.last.extend(text[:MAX_LINE_CHARS] for text in texts if text)
        return texts
