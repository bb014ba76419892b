"""Reuse of what was computed for earlier requests: what can be found, what is kept, and what goes.

The numbered invariants are in `docs/hybrid-cache.md`; comments and tests cite them as P1, P2, ...
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from qanat.cache.account import Account, Awaited, PrefixHit
from qanat.cache.checkpoints import CheckpointPool
from qanat.cache.eviction import EvictionQueue
from qanat.cache.id_pool import IdPool
from qanat.cache.index import CachedBlock, PrefixIndex
from qanat.cache.keys import KeyChain, root_key
from qanat.cache.placement import GRID, Kind, wanted_stops
from qanat.core import prefix_report as why
from qanat.core.batch import StateCopy
from qanat.core.cache_spec import CacheSpec
from qanat.core.prefix_report import PrefixReport
from qanat.core.request import Request

MAX_REMEMBERED = 4096
"""Keys of evicted blocks that reports can tell from tokens never seen."""


@dataclass(frozen=True)
class PrefixRules:
    """What is reused, and for whom.

    Attributes:
        model_digest: tells the weights.
        layout: tells how the cache stores what is computed from them.
        is_by_owner: each owner's prefixes are his own.
        num_checkpoints: places for checkpoints of recurrent states.
        keeps_output_states: whether states within outputs are kept wherever a request gets its next block. Not where
            drafts are verified, as blocks are reserved ahead then: whoever plans says where nothing is open.
    """

    model_digest: str = ""
    layout: str = ""
    is_by_owner: bool = False
    num_checkpoints: int = 0
    keeps_output_states: bool = True


class PrefixCache:
    """The index, its checkpoints, and the order in which they go.

    Args:
        spec: the model's cache regions.
        rules: see PrefixRules.
        pool: of the blocks: what is evicted goes back there.
        first_checkpoint_id: state ids from here on are checkpoints.

    Attributes:
        num_evicted: blocks that had to make room.
        copies: of states, to be made before the next step, in this order.
        index: the blocks that can be found.
    """

    def __init__(self, spec: CacheSpec, rules: PrefixRules, pool: IdPool, first_checkpoint_id: int) -> None:
        self._spec = spec
        self._rules = rules
        self._pool = pool
        self.index = PrefixIndex()
        self._queue: EvictionQueue[CachedBlock] = EvictionQueue(self.value_per_byte)
        num_checkpoints = rules.num_checkpoints if spec.has_states else 0
        self.checkpoints = CheckpointPool(first_checkpoint_id, num_checkpoints, spec.state_bytes)
        self._last_chain: tuple[Request, KeyChain] | None = None
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._under_way: dict[bytes, Account] = {}
        self.num_evicted = 0
        self.copies: list[StateCopy] = []

    @property
    def num_blocks(self) -> int:
        """Blocks in the index."""
        return len(self.index)

    @property
    def num_unheld(self) -> int:
        """Blocks that could go now."""
        return self.index.num_unheld

    def find(self, request: Request) -> PrefixHit:
        """What there is of a request, cut back to the deepest state, and where its own state is to be kept."""
        chain = self._chain(request)
        num_full = (request.num_tokens - 1) // self._spec.block_size
        run = self._run(chain, num_full)
        matched = len(run) * self._spec.block_size
        is_read = request.sampling.prompt_logprobs is None
        cached = run if is_read else []
        if self._spec.has_states:
            while cached and cached[-1].checkpoint is None:
                cached = cached[:-1]
        num_cached = cached[-1].end if cached else 0
        stops = wanted_stops(
            request.num_prompt_tokens,
            start=num_cached,
            boundaries=request.boundaries,
            junction=matched,
        )
        return PrefixHit(
            num_cached,
            cached,
            stops if self._spec.has_states else (),
            chain,
            self._awaited(chain, len(run), num_full, num_cached) if is_read else None,
            PrefixReport(
                request.num_tokens, matched, num_cached, self._why(request, chain, len(run), num_cached)
            ),
        )

    def hold(self, account: Account, hit: PrefixHit) -> None:
        """Gives a request what was found for it; its state will be a copy of the checkpoint."""
        for block in hit.blocks:
            self._queue.discard(block)
            self.index.hold(block)
            block.num_uses += 1
        account.cached = list(hit.blocks)
        account.stops = {stop.position: stop.kind for stop in hit.stops}
        account.chain = hit.chain
        checkpoint = hit.blocks[-1].checkpoint if hit.blocks else None
        if checkpoint is not None and self._spec.has_states:
            self.checkpoints.use(checkpoint)
            self.copies.append(StateCopy(checkpoint.state_id, account.state_id))

    def announce(self, account: Account) -> None:
        """Tells what blocks of its prompt a request is about to compute, so that others may wait for them."""
        assert account.chain is not None
        num_full = account.request.num_prompt_tokens // self._spec.block_size
        for index in range(len(account.cached), num_full):
            self._under_way.setdefault(account.chain[index], account)

    def commit(self, account: Account, num_tokens: int) -> None:
        """Enters a request's full blocks among its first `num_tokens` tokens into the index (P1)."""
        chain, cached = account.chain, account.cached
        if chain is None or not account.is_trusted:
            return
        for number in range(len(cached), num_tokens // self._spec.block_size):
            key, block_id = chain[number], account.block_ids[number]
            self._end_waiting(key, account)
            block = self.index.get(key)
            if block is None:
                parent = cached[-1] if cached else None
                block = self.index.insert(key, parent, block_id, (number + 1) * self._spec.block_size)
            elif not block.num_holders:
                # The same content twice: nobody reads the older copy, so its place is free.
                self._queue.discard(block)
                self._pool.give_back([block.block_id])
                block.block_id = block_id
            self.index.hold(block)
            cached.append(block)
            if account.reserved:
                self._attach(account, block)

    def reserve(self, account: Account, start: int, end: int) -> list[tuple[int, int]]:
        """Places for states of a prompt that the next step passes on its way from `start` to `end`, and leaves there.

        Returns:
            (position, state id), ascending.
        """
        places = []
        for position in sorted(account.stops):
            if not start < position <= end or position % self._spec.block_size:
                continue
            state_id = self.checkpoints.reserve()
            if state_id is None:
                break
            account.reserved[position] = state_id
            places.append((position, state_id))
        return places

    def save(self, account: Account, num_tokens: int, *, is_settled: bool = False) -> None:
        """Keeps a request's state after its first `num_tokens` tokens, all committed, if it is wanted (P3).

        Args:
            account: the request's.
            num_tokens: that its state will have absorbed when the next step begins.
            is_settled: that is so although it drafts.
        """
        if not self._spec.has_states or num_tokens % GRID or not account.cached:
            return
        block = account.cached[-1]
        if block.end != num_tokens or block.checkpoint is not None:
            return
        kind = account.stops.get(num_tokens)
        if kind is None:
            is_kept = is_settled or self._rules.keeps_output_states
            if num_tokens <= account.request.num_prompt_tokens or not is_kept:
                return
            kind = Kind.OUTPUT
            older = account.newest
            if older is not None and not older.num_uses and older.block.checkpoint is older:
                self.checkpoints.drop(older)
        checkpoint = self.checkpoints.make(block, kind)
        if checkpoint is not None:
            self.copies.append(StateCopy(account.state_id, checkpoint.state_id))
        if kind is Kind.OUTPUT:
            account.newest = checkpoint

    def let_go(self, account: Account) -> None:
        """Ends a request's hold; what it has computed stays as long as there is room."""
        if account.chain is not None and self._under_way:
            for number in range(
                len(account.cached), account.request.num_prompt_tokens // self._spec.block_size
            ):
                self._end_waiting(account.chain[number], account)
        for state_id in account.reserved.values():
            self.checkpoints.give_back(state_id)
        account.reserved.clear()
        for block in reversed(account.cached):
            self.index.let_go(block)
            if not block.num_holders:
                self._queue.touch(block)
            if block.is_candidate:
                self._queue.push(block)
        if not account.is_trusted and account.chain is not None:
            # Before a preemption it may have left more than it holds now.
            self._forget(self._run(account.chain, account.request.num_tokens // self._spec.block_size))

    def evict(self) -> None:
        """Makes the block go whose loss costs least; there is one that nobody holds."""
        block = self._queue.pop(len(self.index))
        assert block is not None, "of the blocks that nobody holds, the deepest can go"
        self._evicted[block.key] = None
        if len(self._evicted) > MAX_REMEMBERED:
            self._evicted.popitem(last=False)
        self._remove(block)
        self.num_evicted += 1

    def adopt(self, key: bytes, parent: CachedBlock | None, block_id: int, end: int) -> CachedBlock:
        """Enters a block into the index whose content came from elsewhere; nobody holds it."""
        if parent is not None:
            self._queue.discard(parent)
        block = self.index.insert(key, parent, block_id, end)
        self._queue.touch(block)
        self._queue.push(block)
        return block

    def rank_anew(self, block: CachedBlock) -> None:
        """To be called when what a block is worth has changed from outside."""
        if block.is_candidate:
            self._queue.push(block)

    def clear(self) -> None:
        """Forgets everything; nobody holds anything."""
        for block in reversed(self.index.blocks()):
            self._queue.discard(block)
            self._remove(block)
        self._under_way.clear()
        self.copies.clear()

    def check_integrity(self, accounts: Iterable[Account]) -> list[CachedBlock]:
        """Checks index and checkpoints; returns the index's blocks.

        Args:
            accounts: of all running requests.

        Raises:
            IntegrityError: naming what is wrong.
        """
        self.index.check_integrity()
        blocks = self.index.blocks()
        reserved = [state_id for account in accounts for state_id in account.reserved.values()]
        self.checkpoints.check_integrity(blocks, reserved)
        return blocks

    def _forget(self, run: list[CachedBlock]) -> None:
        """Removes those of a sequence's blocks that nobody holds, and all that has been built on them (P4)."""
        doomed = {block.key for block in run if not block.num_holders}
        if not doomed:
            return
        going = []
        for block in self.index.blocks():
            if block.key in doomed or (block.parent is not None and block.parent.key in doomed):
                doomed.add(block.key)
                going.append(block)
        for block in reversed(going):
            self._queue.discard(block)
            self._remove(block)

    def _attach(self, account: Account, block: CachedBlock) -> None:
        """Makes the state at a block's end findable that the step left at its place."""
        state_id = account.reserved.pop(block.end, None)
        if state_id is None:
            return
        if block.checkpoint is not None:
            self.checkpoints.give_back(state_id)
        else:
            self.checkpoints.make(block, account.stops[block.end], state_id)

    def _chain(self, request: Request) -> KeyChain:
        """The keys of a request; whose turn it is is looked up in every step until it fits."""
        if self._last_chain is None or self._last_chain[0] is not request:
            rules = self._rules
            root = root_key(
                rules.model_digest,
                rules.layout,
                salt=request.cache_salt,
                owner=request.owner if rules.is_by_owner else "",
            )
            self._last_chain = request, KeyChain(root, request, self._spec.block_size)
        return self._last_chain[1]

    def _run(self, chain: KeyChain, num_full: int) -> list[CachedBlock]:
        run = []
        for number in range(num_full):
            block = self.index.get(chain[number])
            if block is None:
                break
            run.append(block)
        return run

    def _awaited(self, chain: KeyChain, num_found: int, num_full: int, num_cached: int) -> Awaited | None:
        """Who computes, right now, more of the same tokens."""
        if num_found >= num_full:
            return None
        leader = self._under_way.get(chain[num_found])
        if leader is None:
            return None
        number = num_found + 1
        while number < num_full and self._under_way.get(chain[number]) is leader:
            number += 1
        num_tokens = number * self._spec.block_size
        if self._spec.has_states:
            num_tokens = max((stop for stop in leader.stops if stop <= num_tokens), default=0)
        return Awaited(leader.request.request_id, num_tokens) if num_tokens > num_cached else None

    def _end_waiting(self, key: bytes, account: Account) -> None:
        if self._under_way.get(key) is account:
            del self._under_way[key]

    def _why(self, request: Request, chain: KeyChain, num_found: int, num_cached: int) -> str:
        """What kept a hit from being longer."""
        block_size = self._spec.block_size
        num_full = (request.num_tokens - 1) // block_size
        if request.sampling.prompt_logprobs is not None:
            return why.SCORED
        if not num_full:
            return why.SHORT
        if num_cached < num_found * block_size:
            return why.NO_STATE
        if num_found == num_full:
            return why.WHOLE
        return why.EVICTED if chain[num_found] in self._evicted else why.NEW

    def _remove(self, block: CachedBlock) -> None:
        """Takes a candidate out of the index, with its checkpoint; its parent may become one (P2)."""
        if block.checkpoint is not None:
            self.checkpoints.drop(block.checkpoint)
        self.index.remove(block)
        self._pool.give_back([block.block_id])
        parent = block.parent
        if parent is not None and parent.is_candidate:
            self._queue.push(parent)

    def value_per_byte(self, block: CachedBlock) -> float:
        """Of the end of a sequence: what is lost if it goes, by what is gained."""
        spec, checkpoint = self._spec, block.checkpoint
        if not spec.has_states:
            return (block.num_uses + 0.5) * spec.block_size / spec.block_bytes
        if checkpoint is None:
            return 0.0  # keys and values that no state goes on from
        saved = checkpoint.saved_tokens
        size_bytes = spec.state_bytes + saved // spec.block_size * spec.block_bytes
        return self.checkpoints.expected_uses(checkpoint) * saved / size_bytes
