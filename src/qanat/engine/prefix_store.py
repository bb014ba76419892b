"""What of the prefix cache lies on disk: loaded at the start, written while nothing else is to be done."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterator

import msgspec

from qanat.cache.exchange import PrefixExchange
from qanat.cache.prefix_stats import PrefixStats
from qanat.core.prefix_entry import PrefixEntry, PrefixOrder
from qanat.core.prefix_folder import Inventory, PrefixFolder
from qanat.executor.base import Executor

logger = logging.getLogger(__name__)

MIB = 2**20
POLL_S = 0.002
PIECE_BYTES, HEAD_BYTES = 4096 + 100, 8192
"""Of a file, beside the content: for each piece, and for the whole."""


class PrefixStore:
    """Rank 0's account of the folder. Whatever fails there is a line in the log and no more.

    Args:
        exchange: picks what is written next, and takes in what is read.
        folder: rank 0's view of it.
        executor: has each rank write and read its share.
        max_bytes: of all files there; None for half of what is free with it empty.
        num_local_ranks: that write into the same folder.
    """

    def __init__(
        self,
        exchange: PrefixExchange,
        folder: PrefixFolder,
        executor: Executor,
        max_bytes: int | None,
        num_local_ranks: int = 1,
    ) -> None:
        self._exchange, self._folder, self._executor = exchange, folder, executor
        self._wanted_bytes, self._num_local_ranks = max_bytes, num_local_ranks
        self._max_bytes = 0
        self._entries: dict[str, PrefixEntry] = {}
        self._blocks: dict[str, str] = {}
        self._states: set[str] = set()
        self._skipped: set[str] = set()
        self._under_way: tuple[PrefixEntry, str] | None = None
        self._num_loaded = self._num_written = self._num_dropped = 0

    def load(self) -> None:
        """Fills free places of the cache with what is worth most; to be called once, before anything is computed."""
        begin_s = time.monotonic()
        if problem := self._folder.prepare():
            logger.warning("No prefixes are kept on disk: %s", problem)
            return
        found: Inventory = self._folder.inventory()
        self._num_dropped = found.num_refused + found.num_damaged
        self._max_bytes = self._wanted_bytes or self._folder.default_bytes()
        for entry in found.entries:
            self._note(entry)
        for entry in sorted(found.entries, key=lambda each: each.value, reverse=True):
            for part in self._beginnings(entry):
                if part.name in self._entries and not self._exchange.contains(part) and not self._load(part):
                    break
        self._drop_orphans()
        logger.info(
            "Prefixes from %s: %d of %d entries loaded, %d refused, %d damaged, %.2f s",
            *(self._folder.path, self._num_loaded, len(found.entries), found.num_refused, found.num_damaged),
            time.monotonic() - begin_s,
        )

    def write_next(self) -> bool:
        """Sends the next entry on its way to the disk; False if there is nothing to write."""
        if self._executor.is_keeping:
            return True
        self._settle()
        if not self._max_bytes:
            return False
        while (found := self._exchange.next_entry(self._blocks, self._states, self._skipped)) is not None:
            entry, aim = found
            if self._make_room(entry):
                self._under_way = found
                self._executor.keep(PrefixOrder("save", entry))
                return True
            self._skipped.add(aim)
        return False

    def finish(self, timeout_s: float | None) -> None:
        """Writes what is left, for about so long at most, and waits for it; None waits for all."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._skipped.clear()
        while (deadline_s is None or time.monotonic() < deadline_s) and self.write_next():
            time.sleep(POLL_S)
        self._executor.keep(PrefixOrder("finish"))
        self._settle()

    def news(self) -> None:
        """Something new was computed: what did not fit before may be worth more now."""
        self._skipped.clear()

    def clear(self) -> None:
        """Removes all entries that this model could load."""
        self._executor.keep(PrefixOrder("finish"))
        self._settle()
        for entry in list(self._entries.values()):
            self._drop(entry)

    def stats(self, others: PrefixStats) -> PrefixStats:
        """The figures of the cache with those of the disk."""
        return msgspec.structs.replace(
            others,
            num_stored_entries=len(self._entries),
            stored_bytes=sum(map(self._exchange.entry_bytes, self._entries.values())),
            num_loaded_entries=self._num_loaded,
            num_written_entries=self._num_written,
            num_dropped_entries=self._num_dropped,
        )

    def _load(self, entry: PrefixEntry) -> bool:
        placed = self._exchange.place(entry)
        if placed is None:
            return False
        if not self._executor.keep(PrefixOrder("load", placed)):
            self._exchange.give_back(placed)
            self._num_dropped += 1
            self._drop(entry)
            return False
        self._exchange.adopt(placed)
        self._folder.touch(entry)
        self._num_loaded += 1
        return True

    def _beginnings(self, entry: PrefixEntry) -> Iterator[PrefixEntry]:
        """What an entry needs before it, first things first, and itself."""
        chain, names = [entry], {entry.name}
        while (name := self._blocks.get(chain[-1].base)) is not None and name not in names:
            names.add(name)
            chain.append(self._entries[name])
        return reversed(chain)

    def _settle(self) -> None:
        """Enters what was under way, if it has arrived."""
        found, self._under_way = self._under_way, None
        if found is None:
            return
        entry, aim = found
        if self._folder.path_of(entry).exists():
            self._note(entry)
            self._num_written += 1
        else:
            self._skipped.add(aim)

    def _note(self, entry: PrefixEntry) -> None:
        self._entries[entry.name] = entry
        for key in entry.keys:
            self._blocks.setdefault(key, entry.name)
        if entry.has_state:
            self._states.add(entry.tail)

    def _make_room(self, entry: PrefixEntry) -> bool:
        """Removes what is worth less until so much more is within the bound; False if that is not enough."""
        files = self._folder.files()
        needed = self._file_bytes(entry)
        left = self._max_bytes - sum(file.size_bytes for file in files)
        left = min(left, self._folder.free_bytes())
        strangers = [file for file in files if not file.is_kin]
        while left < needed and strangers:
            file = strangers.pop(0)
            self._folder.remove(file.path)
            left += file.size_bytes
        going: dict[str, PrefixEntry] = {}
        while left < needed:
            end = min(self._ends(entry, going), key=self._exchange.value, default=None)
            if end is None or self._exchange.value(end) >= entry.value:
                return False
            going[end.name] = end
            left += self._file_bytes(end)
        for each in going.values():
            self._drop(each)
        return True

    def _ends(self, wanted: PrefixEntry, gone: Container[str]) -> list[PrefixEntry]:
        """Entries that no other one begins from, the wanted one included."""
        left = [each for each in self._entries.values() if each.name not in gone]
        bases = {each.base for each in left} | {wanted.base}
        return [each for each in left if bases.isdisjoint(each.keys)]

    def _file_bytes(self, entry: PrefixEntry) -> int:
        """About what it takes on this host's disk."""
        num_pieces = len(entry.keys) + entry.has_state
        own = self._exchange.entry_bytes(entry) + num_pieces * PIECE_BYTES + HEAD_BYTES
        return own * self._num_local_ranks

    def _drop_orphans(self) -> None:
        """Removes entries that begin from what is not there any more: they would keep others from being written."""
        rooted = {"": True}

        def is_rooted(key: str) -> bool:
            path = []
            while key not in rooted:
                path.append(key)
                name = self._blocks.get(key)
                key = self._entries[name].base if name is not None else key
                if name is None or key in path:
                    rooted[path[-1]] = False
                    key = path[-1]
            for each in path:
                rooted[each] = rooted[key]
            return rooted[key]

        orphans = [entry for entry in self._entries.values() if not is_rooted(entry.base)]
        for entry in orphans:
            self._drop(entry)
        self._num_dropped += len(orphans)
        if orphans:
            logger.warning(
                "%d entries are dropped, as what they begin from is gone: %s%s",
                *(len(orphans), orphans[0].name, " and others" if len(orphans) > 1 else ""),
            )

    def _drop(self, entry: PrefixEntry) -> None:
        self._executor.keep(PrefixOrder("drop", entry))
        del self._entries[entry.name]
        for key in entry.keys:
            if self._blocks.get(key) == entry.name:
                del self._blocks[key]
        if entry.has_state:
            self._states.discard(entry.tail)
