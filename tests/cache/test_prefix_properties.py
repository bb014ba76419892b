"""Random requests against a model of what every block and state really holds: a hit never finds anything else.

P1: what can be found is whole, computed, and never written again. P2: it can be found exactly as long as all before it
can. P3: a state is kept for its very tokens. C1: nothing is lost or owned twice, cached blocks included.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qanat.cache.manager import HybridCacheManager
from qanat.cache.prefix_cache import PrefixRules
from qanat.core.request import Request
from tests.support.step_loop import make_request, small_spec

MAX_RUNNING = 4
WHO = st.integers(0, MAX_RUNNING - 1)
FAMILIES = [[(3 * place + family) % 50 for place in range(320)] for family in range(2)]
Tokens = tuple[int, ...]


class PrefixMachine(RuleBasedStateMachine):
    """Plays scheduler and worker at once."""

    @initialize(
        num_blocks=st.integers(12, 60),
        block_size=st.sampled_from([16, 64]),
        num_checkpoints=st.integers(0, 6),
        has_states=st.booleans(),
    )
    def create(self, num_blocks: int, block_size: int, num_checkpoints: int, has_states: bool) -> None:
        spec = small_spec(block_size, has_states=has_states)
        self.block_size, self.num_blocks = block_size, num_blocks
        self.cache = HybridCacheManager(spec, num_blocks + 1, 5, PrefixRules(num_checkpoints=num_checkpoints))
        self.has_states = has_states
        self.running: dict[str, Request] = {}
        self.tables: dict[str, list[int]] = {}
        self.state_ids: dict[str, int] = {}
        self.blocks: dict[int, Tokens] = {}
        self.states: dict[int, Tokens] = {}
        self.users: dict[int, set[str]] = {}  # of each block, since its content began
        self.num_named = 0

    @precondition(lambda self: len(self.running) < MAX_RUNNING)
    @rule(
        family=st.integers(0, 1),
        num_common=st.sampled_from([0, 64, 100, 128, 200]),
        num_own=st.sampled_from([1, 30, 64, 100]),
        own=st.integers(0, 1),
        salt=st.sampled_from(["", "", "", "", "s"]),
        is_scored=st.sampled_from([False, False, False, True]),
        is_computed=st.booleans(),
    )
    def start(
        self,
        family: int,
        num_common: int,
        num_own: int,
        own: int,
        salt: str,
        is_scored: bool,
        is_computed: bool,
    ) -> None:
        tokens = FAMILIES[family][:num_common] + [60 + own] * num_own
        name = f"r{self.num_named}"
        self.num_named += 1
        scores = 0 if is_scored else None
        boundaries = [num_common]
        request = make_request(
            name, tokens, 500, cache_salt=salt, prompt_logprobs=scores, boundaries=boundaries
        )
        self.enter(name, request)
        while is_computed and name in self.running and request.num_computed_tokens < request.num_tokens:
            self.advance_by(name, 500)

    def pick(self, who: int) -> str:
        return sorted(self.running)[who % len(self.running)]

    def enter(self, name: str, request: Request) -> None:
        hit = self.cache.lookup(request)
        tokens = self.tokens(request)
        assert hit.num_tokens == len(hit.blocks) * self.block_size < len(tokens)
        assert not (hit.num_tokens and request.sampling.prompt_logprobs is not None)
        for number, block in enumerate(hit.blocks):
            assert self.blocks[block.block_id] == (
                request.cache_salt,
                *tokens[: (number + 1) * self.block_size],
            )
        allocation = self.cache.admit(request, hit, len(tokens))
        if allocation is None:
            return
        self.running[name], self.tables[name] = request, allocation.block_ids
        self.state_ids[name] = allocation.state_id
        self.make_copies()
        for number, block_id in enumerate(allocation.block_ids):
            if number >= len(hit.blocks):
                self.users[block_id] = set()
            self.users[block_id].add(name)
        if hit.num_tokens and self.has_states:
            assert self.states[allocation.state_id] == (request.cache_salt, *tokens[: hit.num_tokens])
        request.num_computed_tokens = hit.num_tokens

    @precondition(lambda self: self.running)
    @rule(who=WHO, num_tokens=st.sampled_from([1, 16, 64, 128, 400]))
    def compute(self, who: int, num_tokens: int) -> None:
        self.advance_by(self.pick(who), num_tokens)

    def advance_by(self, name: str, num_tokens: int) -> None:
        request = self.running[name]
        if request.num_computed_tokens == request.num_tokens:
            return
        start = request.num_computed_tokens
        end = min(start + num_tokens, request.num_tokens)
        self.cache.advance(request)
        self.make_copies()
        kept = self.cache.keep_on_the_way(name, start, end)
        self.write(name, start, end)
        for position, state_id in kept:
            assert start < position <= end
            self.states[state_id] = (request.cache_salt, *self.tokens(request)[:position])

    @precondition(lambda self: self.running)
    @rule(who=WHO, count=st.sampled_from([1, 63, 64, 130]))
    def generate(self, who: int, count: int) -> None:
        name = self.pick(who)
        request = self.running[name]
        for _ in range(count):
            if request.num_computed_tokens < request.num_tokens:
                return
            request.output_token_ids.append(request.num_tokens % 7)
            start = request.num_computed_tokens
            if start % self.block_size == 0:
                self.cache.advance(request)
                self.make_copies()
            new_ids = self.cache.extend(request.request_id, start + 1)
            if new_ids is None:
                self.leave(name)
                return
            self.tables[name] += new_ids
            self.users |= {block_id: {name} for block_id in new_ids}
            self.write(name, start, start + 1)

    @precondition(lambda self: self.running)
    @rule(who=WHO)
    def preempt(self, who: int) -> None:
        name = self.pick(who)
        request = self.running[name]
        self.leave(name)
        request.num_computed_tokens = 0
        self.enter(name, request)

    @precondition(lambda self: self.running)
    @rule(who=WHO)
    def release(self, who: int) -> None:
        self.leave(self.pick(who))

    @precondition(lambda self: self.running)
    @rule(who=WHO)
    def release_bad(self, who: int) -> None:
        """What it computed was wrong: nobody finds it, but for what others had taken up meanwhile."""
        name = self.pick(who)
        wrong = [block for block in self.tables[name] if self.users[block] == {name}]
        self.cache.distrust(name)
        self.leave(name)
        for block in wrong:
            self.blocks[block] = ("wrong",)

    def leave(self, name: str) -> None:
        del self.running[name], self.tables[name], self.state_ids[name]
        self.cache.release(name)
        self.cache.release(name)

    @precondition(lambda self: not self.running)
    @rule()
    def clear(self) -> None:
        self.cache.forget_prefixes()
        self.blocks.clear()
        self.states.clear()
        assert self.cache.num_free_blocks == self.num_blocks

    def tokens(self, request: Request) -> Tokens:
        return (*request.prompt_token_ids, *request.output_token_ids)

    def write(self, name: str, start: int, end: int) -> None:
        request = self.running[name]
        tokens = self.tokens(request)
        for number in range(start // self.block_size, -(-end // self.block_size)):
            block = self.tables[name][number]
            assert sum(block in table for table in self.tables.values()) == 1, "written while others read it"
            self.blocks[block] = (request.cache_salt, *tokens[: min(end, (number + 1) * self.block_size)])
        self.states[self.state_ids[name]] = (request.cache_salt, *tokens[:end])
        request.num_computed_tokens = end

    def make_copies(self) -> None:
        for copy in self.cache.take_copies():
            self.states[copy.target] = self.states[copy.source]

    @invariant()
    def everything_is_accounted_for(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check_integrity()
        assert 0 not in {block for table in self.tables.values() for block in table}
        held = {block for table in self.tables.values() for block in table}
        # A block may stand in no table and be held: that of another request which computed the same.
        assert self.cache.num_free_blocks <= self.num_blocks - len(held)
        if not self.running:
            assert self.cache.num_free_blocks == self.num_blocks


TestPrefixMachine = PrefixMachine.TestCase
TestPrefixMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
