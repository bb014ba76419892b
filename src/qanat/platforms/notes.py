"""Words that ranks leave for each other while they connect; carried over lines that only they have."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Notes:
    """One rank's copy of all words that were left.

    Args:
        tell: carries this rank's own word, a key and a value, to all others.
    """

    def __init__(self, tell: Callable[[str, bytes], None]) -> None:
        self._tell = tell
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def leave(self, key: str, value: bytes) -> None:
        """Leaves a word for everybody."""
        self.put(key, value)
        self._tell(key, value)

    def put(self, key: str, value: bytes) -> None:
        """Takes in a word that another rank left."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def has(self, key: str) -> bool:
        """Whether anybody has left this word."""
        with self._changed:
            return key in self._values

    def get(self, key: str, timeout_s: float) -> bytes:
        """A word, as soon as it is there.

        Raises:
            RuntimeError: nobody left it within the time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_s):
                raise RuntimeError(f"no rank said {key!r} within {timeout_s:.0f} s")
            return self._values[key]
