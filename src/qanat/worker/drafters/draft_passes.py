"""Runs a draft layer over segments: once to fill its cache, then token by token to guess, as one graph if it can."""

from __future__ import annotations

import bisect
import logging
import time
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
from qanat.worker.drafters.draft_inputs import DraftInputs, Segment
from qanat.worker.graphs.maker import Graph, GraphMaker
from qanat.worker.row_state import RowTable

logger = logging.getLogger(__name__)


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
        capture_s: seconds that capturing graphs took in the last call.
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
        self._inputs = self._make_inputs(max(settings.max_size, 1))
        width, dtype = model.draft_rows
        self._hidden = torch.zeros((max(settings.max_size, 1), width), dtype=dtype)
        self.capture_s = 0.0

    def inputs(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        """The rows to draft from that a pass of the model gives, see `Drafter.observe`."""
        return self._model.draft_inputs(hidden, taps)

    @torch.inference_mode()
    def fill(self, segments: Sequence[Segment], hidden: Tensor) -> None:
        """Computes entries alone.

        Args:
            segments: whose.
            hidden: [T, D] rows of `inputs` at the positions before those of the tokens.
        """
        inputs = self._make_inputs(len(hidden), len(segments))
        inputs.fill(segments)
        self._first_pass(inputs, len(hidden), len(segments), hidden)

    @torch.inference_mode()
    def guess(self, segments: Sequence[Segment], hidden: Tensor) -> list[list[int]]:
        """The same, and then the tokens that are to follow each segment.

        Returns:
            For each segment as many as it asks for; fewer where scores are no numbers.
        """
        self.capture_s = 0.0
        num_passes = max(one.num_drafts for one in segments)
        found = self._replay(segments, hidden, num_passes)
        if found is None:
            inputs = self._make_inputs(len(hidden), len(segments))
            inputs.fill(segments)
            found = self._chain(inputs, len(hidden), len(segments), num_passes, hidden)
        columns = [tokens.tolist() for tokens in found]
        return [
            list(takewhile(lambda token: token >= 0, (column[i] for column in columns[: one.num_drafts])))
            for i, one in enumerate(segments)
        ]

    def _make_inputs(self, max_tokens: int, max_requests: int | None = None) -> DraftInputs:
        sizes = self._sizes
        requests = sizes.max_requests if max_requests is None else max_requests
        if max_requests is None and self._settings.sizes:
            requests = max(requests, self._settings.max_size)
        return DraftInputs(
            max_tokens, requests, sizes.max_drafts - 1, self._table, self._cache, sizes.block_size
        )

    def _replay(self, segments: Sequence[Segment], hidden: Tensor, num_passes: int) -> list[Tensor] | None:
        """Runs as a graph; None where none may stand for it."""
        ladder = self._settings.sizes
        is_off = self._maker is None or self._settings.decode_kind == EAGER
        if is_off or len(hidden) > self._settings.max_size:
            return None
        num_tokens = ladder[bisect.bisect_left(ladder, len(hidden))]
        num_requests = ladder[bisect.bisect_left(ladder, len(segments))]
        key = num_tokens, num_requests, num_passes
        if key not in self._graphs:
            self._graphs[key] = self._capture(*key)
        graph = self._graphs[key]
        if graph is None:
            return None
        self._inputs.fill(segments)
        self._hidden[: len(hidden)] = hidden
        graph.replay()
        found: list[Tensor] = graph.result
        return found

    def _capture(self, num_tokens: int, num_requests: int, num_passes: int) -> Graph | None:
        """Records passes over padding alone."""
        assert self._maker is not None, "graphs are wanted only where they can be made"
        start_s = time.monotonic()
        self._inputs.fill([])
        try:
            return self._maker.capture(
                lambda: self._chain(
                    self._inputs, num_tokens, num_requests, num_passes, self._hidden[:num_tokens]
                ),
                (),
            )
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
        self, inputs: DraftInputs, num_tokens: int, num_requests: int, num_passes: int, hidden: Tensor
    ) -> list[Tensor]:
        """[R] int64 tokens of each pass. Several passes use the one layer, each on what the last has guessed."""
        rows = self._first_pass(inputs, num_tokens, num_requests, hidden)
        if num_tokens != num_requests:
            rows = ops.embedding(inputs.last_rows(num_requests), rows)  # picks rows, natively
        found = [self._choose(rows, inputs.draws(0, num_requests))]
        for index in range(1, num_passes):
            rotary = self._model.rotary_rows(inputs.positions(index, num_requests))
            context = inputs.context(index, num_requests, num_requests, rotary)
            guessed = found[-1].clamp(min=0)  # scores that are no numbers choose nothing
            rows = self._model.draft(guessed, rows, context)
            found.append(self._choose(rows, inputs.draws(index, num_requests)))
        return found

    def _choose(self, rows: Tensor, draws: Tensor) -> Tensor:
        """[R] a token of each."""
        size, num_valid = self._sizes.max_scored_rows, self._sizes.num_valid_token_ids
        parts = [
            ops.choose_tokens(self._model.draft_logits(part), num_valid, own)[0]
            for part, own in zip(rows.split(size), draws.split(size), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
