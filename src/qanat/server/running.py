"""Which generations run for which request id, so that an operator can end them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator


class RunningRequests:
    """Maps the ids that clients and logs know to those of the engine. Several requests may share an id."""

    def __init__(self) -> None:
        self._engine_ids: dict[str, dict[str, None]] = {}  # in order, and quick to leave

    @contextlib.contextmanager
    def listed(self, names: Iterable[str], engine_ids: Iterable[str]) -> Iterator[None]:
        """Lists a request while it runs.

        Args:
            names: ids under which it can be found.
            engine_ids: its generations; no other request has any of them.
        """
        ids = dict.fromkeys(engine_ids)
        known = set(names)
        for name in known:
            self._engine_ids.setdefault(name, {}).update(ids)
        try:
            yield
        finally:
            for name in known:
                listed = self._engine_ids[name]
                for engine_id in ids:
                    listed.pop(engine_id, None)
                if not listed:
                    del self._engine_ids[name]

    def find(self, name: str) -> list[str]:
        """The engine's ids of all that runs under this name."""
        return list(self._engine_ids.get(name, ()))

    def __len__(self) -> int:
        """Number of names."""
        return len(self._engine_ids)
