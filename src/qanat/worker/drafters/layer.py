"""Drafts from a layer that reads the model's own hidden rows: the checkpoint's multi-token prediction, or EAGLE-3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.core.batch import NewRow, ScheduledBatch
from qanat.worker.batch_inputs import RowWork
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.drafters.block_entries import BlockEntries
from qanat.worker.drafters.draft_inputs import Segment
from qanat.worker.drafters.draft_passes import DraftPasses
from qanat.worker.hidden_ring import WINDOW, HiddenRing
from qanat.worker.row_state import RowTable


@dataclass(slots=True)
class _Progress:
    """What is in a request's draft cache.

    Attributes:
        oldest: first position whose hidden row is at hand in this batch row.
        num_done: entries of the tokens before this position are there, or never will be.
        first: from here on they are there; 0 as long as nobody has looked which the blocks of a hit have.
        chunk: [n, C] hidden rows of the positions from num_done - 1 on, where the ring does not hold them for certain.
    """

    oldest: int
    num_done: int
    first: int = 0
    chunk: Tensor | None = None


class LayerDrafter:
    """Keeps the draft layer's cache beside the model's and guesses from it.

    The entry of token i + 1 is made from that token and from the hidden row of position i, and lies in the slot of
    position i + 1, so that a block's content follows from its own tokens (rule R7). Entries are made when drafts are
    wanted: those of a prompt's last chunk too, so that its first token need not wait for them, while earlier chunks
    have theirs made in their own steps. Hidden rows come from the ring that steps leave them in. For a request without
    drafts for longer than that reaches back, the cache *lapses*: it begins anew with the rows that are there, and what
    lies before is not read. A request that begins behind a prefix hit goes on from the entries that its blocks bring,
    and from the hidden row that came with the state or with the last of the blocks.

    Args:
        passes: of the draft layer.
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
    """

    def __init__(self, passes: DraftPasses, table: RowTable, cache: CacheTensors, block_size: int) -> None:
        self._passes, self._table, self._cache, self._block_size = passes, table, cache, block_size
        self._entries = BlockEntries(table, cache, block_size)
        self._progress: dict[int, _Progress] = {}
        self._with_chunks: list[_Progress] = []

    @property
    def ring(self) -> HiddenRing:
        """See `Drafter`."""
        return self._passes.ring

    @property
    def capture_s(self) -> float:
        """Seconds of the last `propose` that went into capturing graphs."""
        return self._passes.capture_s

    def begin(self, batch: ScheduledBatch) -> None:
        """See `Drafter`."""
        self._entries.begin(batch)
        for new_row in batch.new_rows:
            self._progress[new_row.row] = self._enter(new_row)

    def pause(self) -> None:
        """See `Drafter`."""
        if self._with_chunks:
            self._drop_chunks()

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        """See `Drafter`."""
        self._passes.capture_s = 0.0
        drafts: list[list[int]] = [[] for _ in works]
        segments: list[Segment] = []
        places: list[int] = []
        for place, (work, most) in enumerate(zip(works, max_drafts, strict=True)):
            if most:
                progress = self._of(work)
                self._catch_up(work, progress)
                if progress.num_done < work.end:
                    segments.append(
                        Segment(work.row, work.state, progress.num_done, work.end, progress.first, most)
                    )
                    places.append(place)
                    self._keep_ends(work, progress)
                    self._add(work.row, progress, work.end)
        if segments:
            for place, own in zip(places, self._passes.guess(segments), strict=True):
                drafts[place] = own
        if self._with_chunks:
            self._drop_chunks()
        return drafts

    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """See `Drafter`."""
        if not _is_decode(works[-1]):  # prompts come last
            num_rows = works[-1].offset + works[-1].end - works[-1].start
            rows = self._passes.inputs(hidden[:num_rows], [tap[:num_rows] for tap in taps])
            self._observe_prompts([work for work in works if not _is_decode(work)], rows)

    @torch.inference_mode()
    def _observe_prompts(self, works: Sequence[RowWork], hidden: Tensor) -> None:
        """Makes the entries of prompts that go on; of those that end here, keeps what the ring does not hold."""
        segments: list[Segment] = []
        rows: list[Tensor] = []
        for work in works:
            progress = self._of(work)
            own = hidden[work.offset : work.offset + work.end - work.start]
            for num_tokens, state_id in work.stores:
                self._cache.draft_rows[0][state_id].copy_(own[num_tokens - 1])
            self._entries.keep_rows(work.row, work.start, own)
            known = own if progress.chunk is None else torch.cat((progress.chunk, own))
            if work.samples:
                progress.chunk = known.clone() if len(known) > WINDOW else None
                self._with_chunks.append(progress)
            else:
                if len(known) > 1:
                    segments.append(
                        Segment(work.row, work.state, progress.num_done, work.end, progress.first)
                    )
                    rows.append(known[:-1])
                self._add(work.row, progress, work.end)
                progress.chunk = own[-1:].clone()
        if segments:
            self._passes.fill(segments, torch.cat(rows))

    def _enter(self, new_row: NewRow) -> _Progress:
        """Of a request that comes in."""
        row, start = new_row.row, new_row.num_computed_tokens
        if not start:
            self._clear_before(row, 0)
            return _Progress(0, 1, first=1)
        if self._cache.draft_rows:
            before = self._cache.draft_rows[0][new_row.state_id]
        else:
            before = self._entries.row_behind(new_row.block_ids[start // self._block_size - 1])
        place = self._passes.ring.row(row, start - 1)
        return _Progress(start - 1, start, chunk=place.copy_(before).clone()[None])

    def _of(self, work: RowWork) -> _Progress:
        """Of a row's request. Who computed what it has found may have made the last entries of it in this very step."""
        progress = self._progress[work.row]
        if not progress.first:
            size = self._block_size
            progress.first = self._entries.first_before(work.row, progress.num_done // size * size)
        return progress

    def _add(self, row: int, progress: _Progress, end: int) -> None:
        """Notes that the entries of a row's tokens before `end` are made."""
        self._entries.add(row, progress.first, progress.num_done, end)
        progress.num_done = end

    def _keep_ends(self, work: RowWork, progress: _Progress) -> None:
        """Leaves the rows beside blocks that this request has filled since it last had drafts."""
        size = self._block_size
        first = max(progress.num_done - 1, progress.oldest + 1)
        for position in range(first + -(first + 1) % size, work.end - 1, size):
            self._entries.keep_rows(work.row, position, self.ring.row(work.row, position)[None])

    def _catch_up(self, work: RowWork, progress: _Progress) -> None:
        """Makes entries of what the ring does not hold, and begins anew where nothing has the rows."""
        if progress.chunk is not None and len(progress.chunk) > 1:
            end = progress.num_done + len(progress.chunk) - 1
            segment = Segment(work.row, work.state, progress.num_done, end, progress.first)
            self._passes.fill([segment], progress.chunk[:-1])
            self._add(work.row, progress, end)
        progress.chunk = None
        oldest = max(progress.oldest, work.start - WINDOW)
        if progress.num_done <= oldest and oldest < work.start:
            self._clear_before(work.row, oldest)
            progress.num_done = progress.first = oldest + 1

    @torch.inference_mode()
    def _clear_before(self, row: int, position: int) -> None:
        """Clears the block's slots up to `position`, behind which the first entry will lie: read, they count little."""
        size = self._block_size
        block = int(self._table.block_tables[row, position // size])
        for layer in self._cache.draft_kv:
            layer[:, block, : position % size + 1].zero_()

    def _drop_chunks(self) -> None:
        """Whoever has not had drafts in the step behind its prompt does without the rows before the ring's."""
        for progress in self._with_chunks:
            progress.chunk = None
        self._with_chunks.clear()


def _is_decode(work: RowWork) -> bool:
    """Whether the row computes the token that the step before put out."""
    return work.samples and work.num_known == 1 and work.start >= work.state.num_prompt_tokens
