"""Drafts from the checkpoint's multi-token-prediction layer, which reads the model's own hidden rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from qanat.worker.batch_inputs import RowWork
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.drafters.draft_inputs import Segment
from qanat.worker.drafters.draft_passes import DraftPasses
from qanat.worker.row_state import RowState, RowTable
from qanat.worker.workspace import MAX_PENDING_ROWS


@dataclass
class _Progress:
    """What is in a request's draft cache.

    Attributes:
        num_done: entries of the tokens before this position are there, or never will be.
        first: the first that is there.
        pending: hidden rows of the positions from num_done - 1 on, for the next entries.
        is_lapsed: no rows are kept until drafts are wanted again.
    """

    num_done: int
    first: int
    pending: list[Tensor] = field(default_factory=list)
    is_lapsed: bool = False


class MtpDrafter:
    """Keeps the draft layer's cache beside the model's and guesses from it.

    The entry of token i + 1 is made from that token and from the hidden row of position i, and lies in the slot of
    position i + 1, so that a block's content follows from its own tokens (rule R7). Entries of a prompt are made in the
    step that computes it; those of decoded tokens when drafts are next wanted, for up to `MAX_PENDING_ROWS` tokens.
    Beyond that the cache lapses: it begins anew with the tokens that come then, and what lies before is not read.

    Args:
        passes: of the draft layer.
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
    """

    def __init__(self, passes: DraftPasses, table: RowTable, cache: CacheTensors, block_size: int) -> None:
        self._passes, self._table, self._cache, self._block_size = passes, table, cache, block_size
        self._progress: WeakKeyDictionary[RowState, _Progress] = WeakKeyDictionary()

    @property
    def capture_s(self) -> float:
        """Seconds of the last `propose` that went into capturing graphs."""
        return self._passes.capture_s

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        """See `Drafter`."""
        drafts: list[list[int]] = [[] for _ in works]
        segments: list[Segment] = []
        places: list[int] = []
        hidden: list[Tensor] = []
        for place, (work, most) in enumerate(zip(works, max_drafts, strict=True)):
            progress = self._progress.get(work.state)
            if not most or progress is None:
                continue
            if progress.is_lapsed:  # the rows of this step are the first of a new window
                progress.is_lapsed = False
                self._begin(work.row, progress, work.start)
            elif progress.pending:
                segments.append(
                    Segment(work.row, work.state, progress.num_done, work.end, progress.first, most)
                )
                hidden += progress.pending
                places.append(place)
        if segments:
            for place, own in zip(places, self._passes.guess(segments, joined(hidden)), strict=True):
                drafts[place] = own
            for place, segment in zip(places, segments, strict=True):
                progress = self._progress[works[place].state]
                progress.num_done, progress.pending = segment.end, []
        return drafts

    @torch.inference_mode()
    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """See `Drafter`."""
        num_rows = works[-1].offset + works[-1].end - works[-1].start
        works = [work for work in works if not self._is_left_out(work)]
        if not works:
            return
        hidden = self._passes.inputs(hidden[:num_rows], [tap[:num_rows] for tap in taps])
        segments: list[Segment] = []
        rows: list[Tensor] = []
        kept: list[tuple[_Progress, int, int]] = []
        for work in works:
            num_computed = work.state.num_computed_tokens
            progress = self._progress.get(work.state)
            if progress is None:
                progress = self._progress[work.state] = _Progress(0, 0)
                self._begin(work.row, progress, work.start)
            begin, end = work.offset, work.offset + num_computed - work.start
            if work.num_known > 1 or not work.samples:  # of a prompt, entries are made at once
                if num_computed > progress.num_done:
                    segments.append(
                        Segment(work.row, work.state, progress.num_done, num_computed, progress.first)
                    )
                    rows += [*progress.pending, hidden[begin : end - 1]]
                progress.num_done, progress.pending = num_computed, []
                kept.append((progress, end - 1, end))
            else:
                kept.append((progress, begin, end))
        if segments:
            self._passes.fill(segments, joined(rows))
        self._keep(kept, hidden)

    def _is_left_out(self, work: RowWork) -> bool:
        """True for a decoding request whose rows are not kept."""
        progress = self._progress.get(work.state)
        return progress is not None and progress.is_lapsed and work.num_known == 1 and work.samples

    def _begin(self, row: int, progress: _Progress, position: int) -> None:
        """Starts a window in which the token behind `position` has the first entry.

        The slots before it in its block are cleared: read, they count little.
        """
        progress.num_done = progress.first = position + 1
        progress.pending = []
        size = self._block_size
        block = int(self._table.block_tables[row, position // size])
        for layer in self._cache.draft_kv:
            layer[:, block, : position % size + 1].zero_()

    def _keep(self, kept: Sequence[tuple[_Progress, int, int]], hidden: Tensor) -> None:
        """Copies rows out of a result that the next step overwrites."""
        if not kept:
            return
        index = [row for _, begin, end in kept for row in range(begin, end)]
        is_run = index[-1] - index[0] + 1 == len(index)
        copies = hidden[index[0] : index[-1] + 1].clone() if is_run else hidden[index]
        place = 0
        for progress, begin, end in kept:
            progress.pending.append(copies[place : place + end - begin])
            place += end - begin
            if sum(map(len, progress.pending)) > MAX_PENDING_ROWS:
                progress.pending, progress.is_lapsed = [], True


def joined(rows: Sequence[Tensor]) -> Tensor:
    """Hidden rows one behind the other."""
    return rows[0] if len(rows) == 1 else torch.cat(list(rows))
