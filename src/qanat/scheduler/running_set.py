"""Requests in the batch: who sits in which row, and the one way in and out."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort

from qanat.cache.manager import Allocation, HybridCacheManager
from qanat.scheduler.live_request import LiveRequest, Rank, RunningRequest


class RunningSet:
    """The running requests. Entering takes a row, leaving gives row, blocks and state back, each exactly once.

    Attributes:
        decoding: requests whose known tokens have all been scheduled but for the newest, in order of rank.
        prefilling: the others, in order of rank.
        num_growing: running requests that may need more blocks before their end.
    """

    def __init__(self, cache: HybridCacheManager, max_num_seqs: int) -> None:
        self._cache = cache
        self._free_rows = list(range(max_num_seqs))  # a heap: the lowest rows are used first
        self._freed_rows: list[int] = []
        self.decoding: list[RunningRequest] = []
        self.prefilling: list[RunningRequest] = []
        self.num_growing = 0

    def __len__(self) -> int:
        return len(self.decoding) + len(self.prefilling)

    @property
    def has_free_row(self) -> bool:
        """True if one more request can enter."""
        return bool(self._free_rows)

    def enter(self, live: LiveRequest, allocation: Allocation) -> RunningRequest:
        """Seats a request that the cache has admitted."""
        row = heapq.heappop(self._free_rows)
        running = RunningRequest(live, row, len(allocation.block_ids) * self._cache.block_size)
        live.running = running
        live.request.row = row
        self.num_growing += running.is_growing
        insort(self.prefilling, running, key=_rank)
        return running

    def start_decoding(self, running: RunningRequest) -> None:
        """Moves a request whose last known token has been scheduled."""
        _remove(self.prefilling, running)
        running.is_decoding = True
        insort(self.decoding, running, key=_rank)

    def extend(self, running: RunningRequest, num_tokens: int = 1) -> list[int] | None:
        """Reserves the places of the next tokens; None if there are not blocks enough."""
        request = running.request
        self._cache.advance(request)
        num_before = request.num_computed_tokens + running.num_unsure
        new_ids = self._cache.extend(request.request_id, num_before + num_tokens)
        if new_ids is None:
            return None
        running.num_spare += len(new_ids) * self._cache.block_size
        num_reserved = request.num_computed_tokens + running.num_spare
        if running.is_growing and running.live.max_computed_tokens <= num_reserved:
            running.is_growing = False
            self.num_growing -= 1
        return new_ids

    def leave(self, running: RunningRequest) -> None:
        """Ends a stay: the row is free and the cache has everything back."""
        _remove(self.decoding if running.is_decoding else self.prefilling, running)
        running.is_running = False
        running.live.running = None
        running.request.row = -1
        self.num_growing -= running.is_growing
        # The newest token may have been scheduled before it was known, and then nobody says that it was computed.
        num_certain = running.request.num_tokens - bool(running.output_token_ids)
        running.request.num_computed_tokens = min(running.request.num_computed_tokens, num_certain)
        self._cache.release(running.request.request_id)
        heapq.heappush(self._free_rows, running.row)
        self._freed_rows.append(running.row)

    def last_after(self, rank: Rank) -> RunningRequest | None:
        """The request that comes last in order of rank, if that is after `rank`."""
        last = max(
            (group[-1] for group in (self.decoding, self.prefilling) if group), key=_rank, default=None
        )
        return last if last is not None and last.rank > rank else None

    def take_freed_rows(self) -> list[int]:
        """Rows that workers must forget before the next step; each is reported once."""
        freed, self._freed_rows = self._freed_rows, []
        return freed

    def report_freed_again(self, rows: list[int]) -> None:
        """Adds rows to the report whose first report may have been lost."""
        self._freed_rows = sorted({*self._freed_rows, *rows})


def _rank(running: RunningRequest) -> Rank:
    return running.rank


def _remove(group: list[RunningRequest], running: RunningRequest) -> None:
    """Ranks are unique, so the place is found by bisection."""
    del group[bisect_left(group, running.rank, key=_rank)]
