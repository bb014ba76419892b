"""Runs a step's forward pass: as a graph where one may stand for it, eagerly otherwise."""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy.typing as npt
import torch
from torch import Tensor

from qanat.config.graphs import EAGER, FULL, PIECEWISE, GraphSettings
from qanat.core.batch import GraphUse
from qanat.kernels import ops
from qanat.kernels.draws import Draws, as_bytes
from qanat.kernels.native.arena import num_missed
from qanat.kernels.native.graph import GraphCaptureError
from qanat.models.decoder import CausalLM
from qanat.worker.batch_inputs import RowWork, build_inputs, check_works
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.graphs.buffers import StepBuffers
from qanat.worker.graphs.maker import Graph, GraphMaker
from qanat.worker.hidden_ring import HiddenRing
from qanat.worker.row_state import RowTable

logger = logging.getLogger(__name__)

OUTSIDE_PIECES = ("paged_attention", "gated_delta_net")
"""Ops that a piecewise graph leaves outside."""

NO_GRAPHS, TOO_LARGE, PROFILED, NOT_CAPTURED = "no_graphs", "above_largest_size", "profile", "not_captured"
KEEPS_STATES = "keeps_states"
"""Why a step of decoding rows alone runs eagerly."""


class Scores(msgspec.Struct, frozen=True):
    """Scores of the vocabulary for rows, and what is drawn from them as they are; padding may stand behind the rows.

    Attributes:
        logits: [n, V] fp32.
        choice: [2, n] int64, see `qanat.kernels.ops.choose_tokens`.
    """

    logits: Tensor
    choice: npt.NDArray[Any]

    def of(self, rows: Sequence[int]) -> Scores:
        """Of these rows, ascending; a view where they follow each other."""
        is_run = rows[-1] - rows[0] + 1 == len(rows)
        own = slice(rows[0], rows[-1] + 1) if is_run else list(rows)
        return Scores(self.logits[own], self.choice[:, own])


class Forward(msgspec.Struct, frozen=True):
    """Result of a pass; what a graph computed holds until the next one replays.

    Attributes:
        hidden: [T, C] the tokens' rows, and maybe padding.
        taps: of the same tokens, the rows that enter the layers that a draft model reads.
        scores: of all rows, in order, and maybe of padding; None where they are still to be computed.
        use: how the pass ran.
    """

    hidden: Tensor
    taps: tuple[Tensor, ...]
    scores: Scores | None
    use: GraphUse


class _Key(NamedTuple):
    """What a graph is captured for: padded tokens and requests; `has_scores` where every token's are asked for."""

    kind: str
    num_tokens: int
    num_requests: int
    has_scores: bool


@dataclass(frozen=True)
class _Captured:
    """A graph and its results."""

    graph: Graph
    hidden: Tensor
    taps: tuple[Tensor, ...]
    scores: Scores | None
    use: GraphUse


class GraphRunner:
    """Forward passes of one worker. Graphs are captured when a step first needs them, on padding alone.

    Args:
        model: with its weights.
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
        settings: which steps run as graphs.
        maker: makes graphs; needed where the settings want any.
        max_scored_rows: for more rows scores are computed afterwards, in parts.
        num_valid_token_ids: ids from here on cannot be chosen.
        ring: keeps hidden rows; None for none.
    """

    def __init__(
        self,
        model: CausalLM,
        table: RowTable,
        cache: CacheTensors,
        block_size: int,
        settings: GraphSettings,
        maker: GraphMaker | None,
        max_scored_rows: int,
        num_valid_token_ids: int,
        ring: HiddenRing | None = None,
    ) -> None:
        self._model, self._table, self._cache, self._block_size = model, table, cache, block_size
        self._settings, self._maker = settings, maker
        self._max_scored_rows, self._num_valid = max_scored_rows, num_valid_token_ids
        self._ring = ring
        self._buffers: StepBuffers | None = None
        if maker is not None and settings.sizes:
            self._buffers = StepBuffers(settings.max_size, table, cache, block_size, ring is not None)
        self._captured: dict[_Key, _Captured | None] = {}
        self._decode_keys: dict[int, tuple[_Key | None, str]] = {}
        self._num_missed = num_missed()

    def use_settings(self, settings: GraphSettings) -> None:
        """Exchanges them between steps for others with the same sizes."""
        self._settings = settings
        self._decode_keys.clear()

    def run(self, works: Sequence[RowWork], is_profiled: bool = False) -> Forward:
        """Computes the rows' hidden states.

        Raises:
            IntegrityError: a row has no token to compute, or fewer tokens or blocks than it was scheduled for.
        """
        num_tokens = works[-1].offset + works[-1].end - works[-1].start
        if num_tokens == len(works) and num_tokens in self._decode_keys:
            key, reason = self._decode_keys[num_tokens]
            is_decode = True
        else:
            is_decode = num_tokens - sum(len(work.drafts) for work in works) == len(works)
            key, reason = self._key(num_tokens, len(works), is_decode)
        if key is not None and is_profiled:
            key, reason = None, PROFILED
        elif key is not None and any(work.stores for work in works):
            key, reason = None, KEEPS_STATES
        if key is None or self._buffers is None:
            return self._eager(works, is_decode, reason)
        capture_s = 0.0
        if key not in self._captured:
            capture_s = self._capture(key, self._buffers)
        captured = self._captured[key]
        if captured is None:
            return self._eager(works, is_decode, NOT_CAPTURED)
        check_works(works, self._block_size)
        self._buffers.fill(works)
        captured.graph.replay()
        use = captured.use
        # Else there was nothing to capture, and no output outside the graph.
        if capture_s or captured.scores is None:
            use = msgspec.structs.replace(use, capture_s=capture_s, num_arena_misses=self._new_misses())
        return Forward(captured.hidden, captured.taps, captured.scores, use)

    @torch.inference_mode()
    def scores(self, hidden: Tensor, draws: Draws | None = None) -> Scores:
        """Of rows [n, C], outside any graph; the largest are chosen where there are no `draws`."""
        logits = self._model.compute_logits(hidden)
        given = torch.from_numpy(as_bytes(draws)) if draws is not None else None
        return Scores(logits, ops.choose_tokens(logits, self._num_valid, given).numpy())

    def _key(self, num_tokens: int, num_requests: int, is_decode: bool) -> tuple[_Key | None, str]:
        """The graph that may stand for a step, and if there is none, why."""
        settings = self._settings
        kind = settings.decode_kind if is_decode else settings.mixed_kind
        if kind == EAGER or self._buffers is None:
            return None, NO_GRAPHS
        if num_tokens > settings.max_size:
            return None, TOO_LARGE
        padded = settings.sizes[bisect.bisect_left(settings.sizes, num_tokens)]
        if num_tokens == num_requests:
            key = _Key(kind, padded, padded, padded <= self._max_scored_rows)
            self._decode_keys[num_tokens] = key, ""
            return key, ""
        padded_requests = settings.sizes[bisect.bisect_left(settings.sizes, num_requests)]
        return _Key(kind, padded, padded_requests, is_decode and padded <= self._max_scored_rows), ""

    @torch.inference_mode()
    def _eager(self, works: Sequence[RowWork], is_decode: bool, reason: str) -> Forward:
        token_ids, context = build_inputs(works, self._table, self._cache, self._model, self._block_size)
        hidden, taps = self._model.forward_tapped(token_ids, context)
        if self._ring is not None:
            self._ring.store(works, hidden, taps)
        use = GraphUse(EAGER, is_decode, reason, num_arena_misses=self._new_misses())
        return Forward(hidden, taps, None, use)

    def _new_misses(self) -> int:
        """Outputs that found no room in the arena since the last pass, those of its scores among them."""
        before, self._num_missed = self._num_missed, num_missed()
        return max(self._num_missed - before, 0)  # a larger arena begins to count anew

    @torch.inference_mode()
    def _capture(self, key: _Key, buffers: StepBuffers) -> float:
        """Records a pass over padding alone, so that nothing is lost if it fails; returns the seconds it took."""
        assert self._maker is not None, "graphs are wanted only where they can be made"
        start_s = time.monotonic()
        buffers.clear()

        def compute() -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, Tensor] | None]:
            cos, sin = self._model.rotary_rows(buffers.positions(key.num_tokens))
            context = buffers.context(key.num_tokens, key.num_requests, cos, sin)
            hidden, taps = self._model.forward_tapped(buffers.token_ids(key.num_tokens), context)
            if self._ring is not None:
                self._ring.keep(hidden, taps, buffers.places(key.num_tokens))
            if not key.has_scores:
                return hidden, taps, None
            logits = self._model.compute_logits(hidden)
            return (
                hidden,
                taps,
                (logits, ops.choose_tokens(logits, self._num_valid, buffers.draws(key.num_tokens))),
            )

        try:
            graph = self._maker.capture(compute, OUTSIDE_PIECES if key.kind == PIECEWISE else ())
        except GraphCaptureError as error:
            logger.warning("Steps of %d tokens run eagerly: %s.", key.num_tokens, error.message)
            self._captured[key] = None
            return time.monotonic() - start_s
        hidden, taps, found = graph.result
        scores = Scores(found[0], found[1].numpy()) if found is not None else None
        use = GraphUse(key.kind, key.has_scores or key.num_tokens == key.num_requests)
        self._captured[key] = _Captured(graph, hidden, taps, scores, use)
        spent_s = time.monotonic() - start_s
        _log_capture(key, graph, spent_s)
        return spent_s


def _log_capture(key: _Key, graph: Graph, spent_s: float) -> None:
    names = sorted(set(graph.host_nodes)) if key.kind == FULL else []
    outside = f"; called from Python within it: {', '.join(names)}" if names else ""
    logger.info("Captured a %s graph for %d tokens in %.3f s%s.", key.kind, key.num_tokens, spent_s, outside)
