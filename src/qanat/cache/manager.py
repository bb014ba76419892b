"""Ownership of the hybrid cache: a pool of attention blocks and a pool of recurrent states, given out in transactions.

What a request leaves behind can be found by later ones (`qanat.cache.prefix_cache`), as long as nobody needs the room.

The numbered invariants are in `docs/hybrid-cache.md`; comments and tests cite them as C1, C2, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from qanat.cache.account import Account, PrefixHit
from qanat.cache.exchange import PrefixExchange
from qanat.cache.id_pool import RESERVED_ID, IdPool
from qanat.cache.prefix_cache import PrefixCache, PrefixRules
from qanat.cache.prefix_stats import PrefixStats
from qanat.core.batch import StateCopy
from qanat.core.cache_spec import CacheSpec
from qanat.core.errors import IntegrityError
from qanat.core.request import Request


@dataclass(frozen=True)
class Allocation:
    """What a request owns from its admission on.

    Attributes:
        block_ids: KV blocks, in the order of the tokens that they hold.
        state_id: running state; 0 if the model has no recurrent layers.
    """

    block_ids: list[int]
    state_id: int


class HybridCacheManager:
    """Hands out blocks and states. Every id is free, cached, or owned by a running request, at any time.

    Args:
        spec: the model's cache regions.
        num_blocks: size of the block pool, the reserved block 0 included.
        num_states: size of the pool of running states, the reserved state 0 included; unused without recurrent layers.
            Checkpoints lie behind them.
        prefixes: what is reused; None for nothing.
    """

    def __init__(
        self, spec: CacheSpec, num_blocks: int, num_states: int, prefixes: PrefixRules | None = None
    ) -> None:
        self.spec = spec
        self.block_size = spec.block_size
        self._num_blocks = num_blocks
        self._num_states = num_states if spec.has_states else 0
        self._blocks = IdPool(num_blocks)
        self._states = IdPool(self._num_states)
        self._owned: dict[str, Account] = {}
        self._prefixes = (
            PrefixCache(spec, prefixes, self._blocks, self._num_states) if prefixes is not None else None
        )

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had now: those that nobody owns, and cached ones that nobody holds."""
        cached = self._prefixes.num_unheld if self._prefixes is not None else 0
        return self._blocks.num_free + cached

    @property
    def num_free_states(self) -> int:
        """Running states that nobody owns."""
        return self._states.num_free

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that can be owned at all."""
        return self._blocks.num_usable

    @property
    def num_usable_states(self) -> int:
        """Running states that can be owned at all."""
        return self._states.num_usable

    @property
    def usage(self) -> float:
        """Share of the blocks that running requests own, in [0, 1]."""
        usable = self._blocks.num_usable
        return (usable - self.num_free_blocks) / usable if usable else 0.0

    @property
    def state_usage(self) -> float:
        """Share of the running states that is owned, in [0, 1]; 0 without recurrent layers."""
        usable = self._states.num_usable
        return (usable - self._states.num_free) / usable if usable else 0.0

    @property
    def keeps_states(self) -> bool:
        """True if recurrent states of prompts and outputs are kept for later requests."""
        return self._prefixes is not None and self.spec.has_states

    def prefix_stats(self) -> PrefixStats:
        """Figures of what is cached; all 0 if nothing is."""
        prefixes = self._prefixes
        if prefixes is None:
            return PrefixStats()
        places = prefixes.checkpoints
        return PrefixStats(
            num_blocks=prefixes.num_blocks,
            num_checkpoints=places.num_kept,
            size_bytes=prefixes.num_blocks * self.spec.block_bytes + places.num_kept * self.spec.state_bytes,
            num_evicted_blocks=prefixes.num_evicted,
            num_evicted_checkpoints=places.num_evicted,
        )

    def lookup(self, request: Request) -> PrefixHit:
        """What the cache already holds of a request's tokens, and where its state is to be kept."""
        return self._prefixes.find(request) if self._prefixes is not None else PrefixHit()

    def admit(self, request: Request, hit: PrefixHit, num_tokens: int) -> Allocation | None:
        """Gives a request its blocks and its state, all or nothing (C3).

        Args:
            request: owns nothing yet.
            hit: from `lookup`, with nothing done since.
            num_tokens: the blocks hold so many tokens, those of the hit included.

        Returns:
            None, with nothing changed, if blocks or states do not suffice.

        Raises:
            IntegrityError: the request already owns something, or the hit leaves no token to compute.
        """
        if request.request_id in self._owned:
            raise IntegrityError(f"Request {request.request_id} is admitted to the cache a second time.")
        if hit.num_tokens >= request.num_tokens:
            raise IntegrityError(
                f"A prefix hit of {hit.num_tokens} tokens leaves nothing to compute of the "
                f"{request.num_tokens} tokens of request {request.request_id}."
            )
        num_blocks = self.spec.num_blocks_for(num_tokens)
        needs_state = self.spec.has_states
        if num_blocks - hit.num_shared_blocks > self.num_free_blocks or (
            needs_state and not self._states.num_free
        ):
            return None
        state_id = self._states.take(1)[0] if needs_state else RESERVED_ID
        account = Account(request, [block.block_id for block in hit.blocks], state_id)
        self._owned[request.request_id] = account
        if self._prefixes is not None:
            self._prefixes.hold(account, hit)
        account.block_ids += self._take_blocks(num_blocks - len(account.block_ids))
        if self._prefixes is not None:
            self._prefixes.announce(account)
        # The caller's copy: what is owned changes here only.
        return Allocation(list(account.block_ids), state_id)

    def extend(self, request_id: str, num_tokens: int) -> list[int] | None:
        """Gives an admitted request blocks until `num_tokens` tokens fit.

        Returns:
            The new block ids, none if it owns enough; None, with nothing changed, if the pool does not suffice (C3).

        Raises:
            KeyError: the request owns nothing.
        """
        owned = self._owned[request_id].block_ids
        num_missing = self.spec.num_blocks_for(num_tokens) - len(owned)
        if num_missing <= 0:
            return []
        if num_missing > self.num_free_blocks:
            return None
        new_ids = self._take_blocks(num_missing)
        owned += new_ids
        return new_ids

    def advance(self, request: Request, *, is_settled: bool = False) -> None:
        """Indexes what a request has computed in the steps up to now, and keeps its state if that is wanted here.

        To be called before more of its tokens are scheduled: what is found by others from now on, they read in the
        next step at the earliest, and what is kept is copied before that step.

        Args:
            request: owns blocks.
            is_settled: it drafts, and no step of its is under way: it has accepted what it has computed, and no more.
        """
        if self._prefixes is not None:
            account = self._owned[request.request_id]
            self._prefixes.commit(account, request.num_computed_tokens)
            self._prefixes.save(account, request.num_computed_tokens, is_settled=is_settled)

    def keep_on_the_way(self, request_id: str, start: int, end: int) -> list[tuple[int, int]]:
        """Where the step that computes a request's tokens `start` to `end` leaves states that it passes.

        Returns:
            (position, state id), ascending.
        """
        account = self._owned[request_id]
        if self._prefixes is None or not account.stops:
            return []
        return self._prefixes.reserve(account, start, end)

    def take_copies(self) -> list[StateCopy]:
        """Copies of states for the next step, in their order; each is told once."""
        if self._prefixes is None or not self._prefixes.copies:
            return []
        copies, self._prefixes.copies = self._prefixes.copies, []
        return copies

    def distrust(self, request_id: str) -> None:
        """What a request has computed may be wrong: with its release, what nobody else holds of it is forgotten."""
        self._owned[request_id].is_trusted = False

    def release(self, request_id: str) -> None:
        """Takes everything back from a request: the only way to free, harmless when repeated (C4)."""
        account = self._owned.pop(request_id, None)
        if account is None:
            return
        if self._prefixes is not None:
            self._prefixes.commit(account, account.request.num_computed_tokens)
        # Reversed, so that the pool hands them out again in the same order.
        self._blocks.give_back(account.own_block_ids)
        if self._prefixes is not None:
            self._prefixes.let_go(account)
        if account.state_id != RESERVED_ID:
            self._states.give_back([account.state_id])

    def exchange(self) -> PrefixExchange | None:
        """What of the cache goes to a disk, and comes back from there; None if nothing is cached."""
        if self._prefixes is None:
            return None
        return PrefixExchange(self.spec, self._prefixes, self._blocks)

    def forget_prefixes(self) -> None:
        """Forgets what is cached; nothing is owned."""
        if self._prefixes is not None:
            self._prefixes.clear()

    def check_integrity(self) -> None:
        """Counts every id of both pools (C1, C2) and checks the index (P1 to P3).

        Raises:
            IntegrityError: naming ids that are lost, owned twice, both free and owned, or reserved.
        """
        accounts = self._owned.values()
        cached = self._prefixes.check_integrity(accounts) if self._prefixes is not None else []
        taken = [block.block_id for block in cached]
        taken += [block for account in accounts for block in account.own_block_ids]
        _check_pool("block", self._num_blocks, self._blocks.free_ids(), taken)
        holders = Counter(block.key for account in accounts for block in account.cached)
        if any(block.num_holders != holders[block.key] for block in cached):
            raise IntegrityError("The index miscounts the holders of a block.")
        states = [account.state_id for account in accounts]
        if self.spec.has_states:
            _check_pool("state", self._num_states, self._states.free_ids(), states)
        elif any(state_id != RESERVED_ID for state_id in states):
            raise IntegrityError("A state is owned although the model has no recurrent layers.")

    def _take_blocks(self, count: int) -> list[int]:
        """So many blocks, of which cached ones make room if need be; the caller has made sure that they suffice."""
        while self._blocks.num_free < count and self._prefixes is not None:
            self._prefixes.evict()
        return self._blocks.take(count)


def _check_pool(kind: str, num_ids: int, free: Iterable[int], owned: Iterable[int]) -> None:
    """Every id but the reserved one occurs exactly once among free and owned ids."""
    counts = Counter(free)
    counts.update(owned)
    expected = range(RESERVED_ID + 1, num_ids)
    wrong = {
        "lost": [i for i in expected if i not in counts],
        "held more than once": [i for i, count in counts.items() if count > 1],
        "outside the pool": [i for i in counts if i not in expected],
    }
    faults = [f"{what}: {sorted(ids)[:8]}" for what, ids in wrong.items() if ids]
    if faults:
        raise IntegrityError(f"The {kind} pool is inconsistent; " + "; ".join(faults) + ".")
