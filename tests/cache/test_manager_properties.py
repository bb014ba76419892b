"""Random sequences of cache operations against a model of who owns how much."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from qanat.cache.manager import HybridCacheManager, PrefixHit
from tests.support.step_loop import make_request, small_spec

REQUEST_IDS = st.sampled_from("abcdef")
BLOCK_SIZE = 4


class CacheMachine(RuleBasedStateMachine):
    """C1 to C4: whatever is called in whatever order, the counts agree with a plain dict of requests to blocks."""

    @initialize(num_blocks=st.integers(1, 12), num_states=st.integers(1, 5), has_states=st.booleans())
    def create(self, num_blocks: int, num_states: int, has_states: bool) -> None:
        self.num_usable_blocks = num_blocks
        self.num_usable_states = num_states if has_states else 0
        spec = small_spec(BLOCK_SIZE, has_states=has_states)
        self.cache = HybridCacheManager(spec, num_blocks + 1, num_states + 1)
        self.owned: dict[str, list[int]] = {}
        self.states: dict[str, int] = {}

    def free_blocks(self) -> int:
        return self.num_usable_blocks - sum(map(len, self.owned.values()))

    @rule(request_id=REQUEST_IDS, num_tokens=st.integers(1, 60))
    def admit(self, request_id: str, num_tokens: int) -> None:
        if request_id in self.owned:
            return
        num_blocks = -(-num_tokens // BLOCK_SIZE)
        lacks_state = bool(self.num_usable_states) and len(self.states) == self.num_usable_states
        allocation = self.cache.admit(make_request(request_id, num_tokens), PrefixHit(), num_tokens)
        assert (allocation is None) == (num_blocks > self.free_blocks() or lacks_state)
        if allocation is not None:
            self.owned[request_id] = allocation.block_ids
            self.states[request_id] = allocation.state_id
            assert len(allocation.block_ids) == num_blocks

    @rule(request_id=REQUEST_IDS, num_tokens=st.integers(1, 60))
    def extend(self, request_id: str, num_tokens: int) -> None:
        if request_id not in self.owned:
            return
        num_missing = max(0, -(-num_tokens // BLOCK_SIZE) - len(self.owned[request_id]))
        new_ids = self.cache.extend(request_id, num_tokens)
        assert (new_ids is None) == (num_missing > self.free_blocks())
        if new_ids is not None:
            assert len(new_ids) == num_missing
            self.owned[request_id] += new_ids

    @rule(request_id=REQUEST_IDS)
    def release(self, request_id: str) -> None:
        self.cache.release(request_id)
        self.owned.pop(request_id, None)
        self.states.pop(request_id, None)

    @invariant()
    def nothing_is_lost_or_shared(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check_integrity()
        owned = [block for blocks in self.owned.values() for block in blocks]
        assert len(set(owned)) == len(owned)
        assert 0 not in owned
        assert self.cache.num_free_blocks == self.free_blocks()
        if self.num_usable_states:
            states = list(self.states.values())
            assert len(set(states)) == len(states)
            assert 0 not in states
            assert self.cache.num_free_states == self.num_usable_states - len(states)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
