"""The targets of prefix reuse, on traces, through the benchmark's own door."""

from __future__ import annotations

import pytest

from benchmarks import prefix_cache
from benchmarks.prefixes.oracles import Clairvoyant, paths_of, targets_of
from benchmarks.prefixes.replay import LARGEST, Pools, attention_spec, replay, spec_of_08b
from benchmarks.prefixes.traces import TRACES


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_reuse_comes_near_what_is_possible(name: str) -> None:
    spec = spec_of_08b()
    turns = TRACES[name](0)
    best = 64 * sum(targets_of(turns, paths_of(turns)))
    whole = replay(turns, spec, Pools())
    assert whole.num_hit_tokens >= prefix_cache.UNLIMITED_TARGET * best
    longest = max(len(turn.prompt) + len(turn.output) for turn in turns) // 64 + 2
    for part in prefix_cache.PARTS:
        pools = whole.used.share(part, longest)
        budget_bytes = pools.num_blocks * spec.block_bytes + pools.num_checkpoints * spec.state_bytes
        clairvoyant = Clairvoyant(turns, spec, budget_bytes).num_hit_tokens()
        ours = replay(turns, spec, pools).num_hit_tokens
        assert clairvoyant <= best
        assert ours >= prefix_cache.CLAIRVOYANT_TARGET * clairvoyant
        assert ours >= 0.98 * replay(turns, spec, pools, is_lru=True).num_hit_tokens


def test_who_knows_the_future_and_has_room_reaches_what_is_possible() -> None:
    turns = TRACES["agent tree"](1)[:60]
    best = 64 * sum(targets_of(turns, paths_of(turns)))
    assert Clairvoyant(turns, spec_of_08b(), 2**50).num_hit_tokens() == best
    assert Clairvoyant(turns, spec_of_08b(), 0).num_hit_tokens() == 0
    assert replay(turns, attention_spec(), Pools(LARGEST, 0)).num_hit_tokens == best
