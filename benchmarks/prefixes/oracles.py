"""What the best could do: a state at every 64 tokens for ever, and one who knows the future within a budget."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from benchmarks.prefixes.replay import BLOCK_SIZE
from benchmarks.prefixes.traces import Turn
from qanat.cache.keys import block_key
from qanat.core.cache_spec import CacheSpec

Path = list[bytes]
"""Keys of all full blocks of a request whose tokens are computed, its output included."""


def paths_of(turns: Sequence[Turn]) -> list[Path]:
    """The path of each request."""
    paths = []
    for turn in turns:
        tokens, key, path = (turn.prompt + turn.output)[:-1], b"", Path()
        for start in range(0, len(tokens) // BLOCK_SIZE * BLOCK_SIZE, BLOCK_SIZE):
            key = block_key(key, tokens[start : start + BLOCK_SIZE])
            path.append(key)
        paths.append(path)
    return paths


def targets_of(turns: Sequence[Turn], paths: Sequence[Path]) -> list[int]:
    """Blocks of each request that some request before it has computed, with a token left to compute."""
    seen: set[bytes] = set()
    targets = []
    for turn, path in zip(turns, paths, strict=True):
        depth, most = 0, (len(turn.prompt) - 1) // BLOCK_SIZE
        while depth < most and path[depth] in seen:
            depth += 1
        targets.append(depth)
        seen.update(path)
    return targets


class Clairvoyant:
    """Keeps, of all positions of all requests, those that are worth most for their bytes; it knows what will come.

    An item is a state (of models that have any) with the blocks since the item before it. Its value is the tokens that
    it will save when it is next wanted as the deepest hit, divided by the number of requests until then; the least
    value per byte goes first, and what is never wanted again goes at once. One budget holds blocks and states together.
    """

    def __init__(self, turns: Sequence[Turn], spec: CacheSpec, budget_bytes: int) -> None:
        self._paths = paths_of(turns)
        self._targets = targets_of(turns, self._paths)
        self._spec = spec
        self._budget_bytes = budget_bytes
        self._wanted: dict[bytes, list[int]] = defaultdict(list)
        for number, (path, depth) in enumerate(zip(self._paths, self._targets, strict=True)):
            if depth:
                self._wanted[path[depth - 1]].append(number)
        self._kept: dict[bytes, Path] = {}  # key of an item: the path up to it

    def num_hit_tokens(self) -> int:
        """Runs the trace."""
        total = 0
        for number, (path, target) in enumerate(zip(self._paths, self._targets, strict=True)):
            total += BLOCK_SIZE * max(
                (depth for depth in range(1, target + 1) if path[depth - 1] in self._kept), default=0
            )
            for depth in range(1, len(path) + 1):
                if self._next_use(path[depth - 1], number) is not None:
                    self._kept.setdefault(path[depth - 1], path[:depth])
            self._make_room(number)
        return total

    def _next_use(self, key: bytes, now: int) -> int | None:
        uses = self._wanted.get(key, [])
        place = bisect_right(uses, now)
        return uses[place] if place < len(uses) else None

    def _make_room(self, now: int) -> None:
        self._kept = {key: path for key, path in self._kept.items() if self._next_use(key, now) is not None}
        while self._size_bytes() > self._budget_bytes:
            del self._kept[min(self._kept, key=lambda key: self._value_per_byte(key, now))]

    def _size_bytes(self) -> int:
        blocks = {key for path in self._kept.values() for key in path}
        return len(blocks) * self._spec.block_bytes + len(self._kept) * self._spec.state_bytes

    def _value_per_byte(self, key: bytes, now: int) -> float:
        path, use = self._kept[key], self._next_use(key, now)
        assert use is not None
        before = max((depth for depth in range(1, len(path)) if path[depth - 1] in self._kept), default=0)
        num_blocks = len(path) - before
        size_bytes = self._spec.state_bytes + num_blocks * self._spec.block_bytes
        return num_blocks * BLOCK_SIZE / (use - now) / size_bytes
