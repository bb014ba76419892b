"""Runs a draft layer over segments: once to fill its cache, then token by token to guess, as one graph if it can."""

from __future__ import annotations

import bisect
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from qanat.config.graphs import EAGER, GraphSettings
from qanat.kernels import ops
from qanat.kernels.native.graph import GraphCaptureError
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.drafters.base import DraftModel
from qanat.worker.drafters.draft_inputs import DraftInputs, GraphDraftInputs, Segment
from qanat.worker.graphs.maker import Graph, GraphMaker
from qanat.worker.hidden_ring import HiddenRing
from qanat.worker.row_state import RowTable

logger = logging.getLogger(__name__)


CAPTURED_AFTER = 3
"""A graph is captured when it is wanted for this time: many sizes come once, as where requests end."""


@dataclass(frozen=True)
class DraftSizes:
    """Sizes that passes keep to.

    Attributes:
        max_drafts: of a request in a step.
        max_requests: for which tokens are guessed at a time.
        max_scored_rows: for more rows scores are computed in parts.
        num_valid_token_ids: ids from here on cannot be guessed.
        block_size: tokens in a block.
    """

    max_drafts: int
    max_requests: int
    max_scored_rows: int
    num_valid_token_ids: int
    block_size: int


class DraftPasses:
    """Passes of a draft layer.

    Args:
        model: has it.
        table: the worker's rows.
        cache: its cache tensors.
        sizes: see there.
        settings: which numbers of tokens graphs are captured for; none for none.
        maker: makes graphs.

    Attributes:
        ring: of hidden rows.
        capture_s: seconds of capturing graphs, and of passes that may have one later, since somebody set it
            to 0.
    """

    def __init__(
        self,
        model: DraftModel,
        table: RowTable,
        cache: CacheTensors,
        sizes: DraftSizes,
        settings: GraphSettings,
        maker: GraphMaker | None,
    ) -> None:
        self._model, self._table, self._cache, self._sizes = model, table, cache, sizes
        self._settings, self._maker = settings, maker
        self._graphs: dict[tuple[int, int, int], Graph | None] = {}
        self._num_wanted: Counter[tuple[int, int, int]] = Counter()
        most = max(settings.max_size, 1)
        self._inputs: DraftInputs | None = None
        if maker is not None and settings.sizes and settings.decode_kind != EAGER:
            self._inputs = GraphDraftInputs(most, most, sizes.max_drafts - 1, table, cache, sizes.block_size)
        num_table_rows = table.block_tables.shape[0]
        self.ring = HiddenRing(num_table_rows, *model.draft_rows, model.draft_inputs)
        self.capture_s = 0.0

    def inputs(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        """The rows to draft from that a pass of the model gives, see `Drafter.observe`."""
        return self._model.draft_inputs(hidden, taps)

    @torch.inference_mode()
    def fill(self, segments: Sequence[Segment], hidden: Tensor) -> None:
        """Computes entries alone.

        Args:
            segments: whose.
            hidden: [T, D] rows of `DraftModel.draft_inputs` at the positions before the tokens; not from the ring.
        """
        inputs, num_tokens = self._eager_inputs(segments)
        self._first_pass(inputs, num_tokens, len(segments), hidden)

    @torch.inference_mode()
    def guess(self, segments: Sequence[Segment]) -> list[list[int]]:
        """The same from the rows of the ring, and then the tokens that are to follow each segment.

        Returns:
            For each segment as many as it asks for; fewer where scores are no numbers.
        """
        num_passes = max(one.num_drafts for one in segments)
        found = self._replay(segments, num_passes)
        if found is None:
            start_s = time.monotonic()
            inputs, num_tokens = self._eager_inputs(segments)
            found = self._chain(inputs, num_tokens, len(segments), num_passes)
            if self._inputs is not None:  # no longer so once it is captured
                self.capture_s += time.monotonic() - start_s
        columns = [tokens.tolist() for tokens in found]
        return [
            list(takewhile(lambda token: token >= 0, (column[i] for column in columns[: one.num_drafts])))
            for i, one in enumerate(segments)
        ]

    def _eager_inputs(self, segments: Sequence[Segment]) -> tuple[DraftInputs, int]:
        sizes, num_tokens = self._sizes, _num_tokens(segments)
        inputs = DraftInputs(
            num_tokens, len(segments), sizes.max_drafts - 1, self._table, self._cache, sizes.block_size
        )
        inputs.fill(segments)
        return inputs, num_tokens

    def _replay(self, segments: Sequence[Segment], num_passes: int) -> list[Tensor] | None:
        """Runs as a graph; None where none may stand for it."""
        inputs, own, ladder = self._inputs, _num_tokens(segments), self._settings.sizes
        if inputs is None or own > self._settings.max_size:
            return None
        num_tokens = ladder[bisect.bisect_left(ladder, own)]
        num_requests = ladder[bisect.bisect_left(ladder, len(segments))]
        key = num_tokens, num_requests, num_passes
        if key not in self._graphs:
            self._num_wanted[key] += 1
            if self._num_wanted[key] < CAPTURED_AFTER:
                return None
            self._graphs[key] = self._capture(inputs, *key)
        graph = self._graphs[key]
        if graph is None:
            return None
        inputs.fill(segments)
        graph.replay()
        found: list[Tensor] = graph.result
        return found

    def _capture(
        self, inputs: DraftInputs, num_tokens: int, num_requests: int, num_passes: int
    ) -> Graph | None:
        """Records passes over padding alone."""
        assert self._maker is not None, "graphs are wanted only where they can be made"
        start_s = time.monotonic()
        inputs.fill([])
        try:
            return self._maker.capture(lambda: self._chain(inputs, num_tokens, num_requests, num_passes), ())
        except GraphCaptureError as error:
            logger.warning("Drafts for %d tokens are made eagerly: %s.", num_tokens, error.message)
            return None
        finally:
            self.capture_s += time.monotonic() - start_s

    def _first_pass(self, inputs: DraftInputs, num_tokens: int, num_requests: int, hidden: Tensor) -> Tensor:
        rotary = self._model.rotary_rows(inputs.positions(0, num_tokens))
        context = inputs.context(0, num_tokens, num_requests, rotary)
        return self._model.draft(inputs.token_ids(num_tokens), hidden, context)

    def _chain(
        self, inputs: DraftInputs, num_tokens: int, num_requests: int, num_passes: int
    ) -> list[Tensor]:
        """[R] int64 tokens of each pass. Several passes use the one layer, each on what the last has guessed."""
        hidden = ops.embedding(inputs.sources(num_tokens), self.ring.rows)  # picks rows, natively
        rows = self._first_pass(inputs, num_tokens, num_requests, hidden)
        if num_tokens != num_requests:
            rows = ops.embedding(inputs.last_rows(num_requests), rows)
        choices = [self._choose(rows, inputs.draws(0, num_requests))]
        for index in range(1, num_passes):
            rotary = self._model.rotary_rows(inputs.positions(index, num_requests))
            context = inputs.context(index, num_requests, num_requests, rotary)
            rows = self._model.draft(ops.known_tokens(choices[-1]), rows, context)
            choices.append(self._choose(rows, inputs.draws(index, num_requests)))
        return [choice[0] for choice in choices]

    def _choose(self, rows: Tensor, draws: Tensor) -> Tensor:
        """[2, R] a token of each, see `qanat.kernels.ops.choose_tokens`."""
        size, num_valid = self._sizes.max_scored_rows, self._sizes.num_valid_token_ids
        parts = [
            ops.choose_tokens(self._model.draft_logits(part), num_valid, own)
            for part, own in zip(rows.split(size), draws.split(size), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _num_tokens(segments: Sequence[Segment]) -> int:
    return sum(one.end - one.start for one in segments)
