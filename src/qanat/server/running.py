"""Which generations run for which request id, so that an operator can end them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator


class RunningRequests:
    """Maps the ids that clients and logs know to those of the engine. Several requests may share an id."""

    def __init__(self) -> None:
        self._engine_ids: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def listed(self, names: Iterable[str], engine_ids: Iterable[str]) -> Iterator[None]:
        """Lists a request while it runs.

        Args:
            names: ids under which it can be found.
            engine_ids: its generations.
        """
        ids = list(engine_ids)
        known = set(names)
        for name in known:
            self._engine_ids.setdefault(name, []).extend(ids)
        try:
            yield
        finally:
            for name in known:
                left = [engine_id for engine_id in self._engine_ids[name] if engine_id not in ids]
                if left:
                    self._engine_ids[name] = left
                else:
                    del self._engine_ids[name]

    def find(self, name: str) -> list[str]:
        """The engine's ids of all that runs under this name."""
        return list(self._engine_ids.get(name, ()))

    def __len__(self) -> int:
        """Number of names."""
        return len(self._engine_ids)
