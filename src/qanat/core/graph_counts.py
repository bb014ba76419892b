"""How many steps ran as graphs, and why the others did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qanat.core.batch import GraphUse

EAGER = "eager"


class GraphCounts(msgspec.Struct, frozen=True):
    """Counters since the start.

    Attributes:
        num_replays: steps that ran as graphs, by kind ("full", "piecewise").
        num_eager_decodes: steps of decoding rows alone that ran eagerly, by reason.
        num_captures: graphs captured.
        capture_s: seconds that capturing took.
        num_arena_misses: outputs of native ops that the arena had no room for.
    """

    num_replays: Mapping[str, int] = {}
    num_eager_decodes: Mapping[str, int] = {}
    num_captures: int = 0
    capture_s: float = 0.0
    num_arena_misses: int = 0


class GraphCounter:
    """Counts what steps report."""

    def __init__(self) -> None:
        self._replays: dict[str, int] = {}
        self._eager: dict[str, int] = {}
        self._num_captures = 0
        self._capture_s = 0.0
        self._num_arena_misses = 0

    def add(self, use: GraphUse) -> None:
        """Takes one step into account."""
        if use.kind != EAGER:
            self._replays[use.kind] = self._replays.get(use.kind, 0) + 1
        elif use.is_decode:
            self._eager[use.reason] = self._eager.get(use.reason, 0) + 1
        self._num_arena_misses += use.num_arena_misses
        if use.capture_s:
            self._num_captures += 1
            self._capture_s += use.capture_s

    def counts(self) -> GraphCounts:
        """What was counted so far; a copy."""
        return GraphCounts(
            dict(self._replays),
            dict(self._eager),
            self._num_captures,
            self._capture_s,
            self._num_arena_misses,
        )


def total_graph_counts(every: Sequence[GraphCounts]) -> GraphCounts:
    """Those of several engines together."""
    return GraphCounts(
        _added([one.num_replays for one in every]),
        _added([one.num_eager_decodes for one in every]),
        sum(one.num_captures for one in every),
        sum(one.capture_s for one in every),
        sum(one.num_arena_misses for one in every),
    )


def _added(every: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = {name: None for counts in every for name in counts}
    return {name: sum(counts.get(name, 0) for counts in every) for name in names}
