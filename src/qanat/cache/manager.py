"""Ownership of the hybrid cache: a pool of attention blocks and a pool of recurrent states, given out in transactions.

The numbered invariants are in `docs/hybrid-cache.md`; comments and tests cite them as C1, C2, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from qanat.cache.id_pool import RESERVED_ID, IdPool
from qanat.core.cache_spec import CacheSpec
from qanat.core.errors import IntegrityError
from qanat.core.request import Request


@dataclass(frozen=True)
class PrefixHit:
    """What of a request's tokens the cache already holds.

    Attributes:
        num_tokens: leading tokens that need not be computed; always fewer than the request has (C6).
    """

    num_tokens: int = 0


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
    """Hands out blocks and states. Every id is free or owned by exactly one request, at any time.

    Args:
        spec: the model's cache regions.
        num_blocks: size of the block pool, the reserved block 0 included.
        num_states: size of the state pool, the reserved state 0 included; unused without recurrent layers.
    """

    def __init__(self, spec: CacheSpec, num_blocks: int, num_states: int) -> None:
        self.spec = spec
        self.block_size = spec.block_size
        self._blocks = IdPool(num_blocks)
        self._states = IdPool(num_states if spec.has_states else 0)
        self._num_blocks = num_blocks
        self._num_states = num_states if spec.has_states else 0
        self._owned: dict[str, Allocation] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody owns."""
        return self._blocks.num_free

    @property
    def num_free_states(self) -> int:
        """States that nobody owns."""
        return self._states.num_free

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that can be owned at all."""
        return self._blocks.num_usable

    @property
    def num_usable_states(self) -> int:
        """States that can be owned at all."""
        return self._states.num_usable

    @property
    def usage(self) -> float:
        """Share of the blocks that is owned, in [0, 1]."""
        usable = self._blocks.num_usable
        return (usable - self._blocks.num_free) / usable if usable else 0.0

    @property
    def state_usage(self) -> float:
        """Share of the states that is owned, in [0, 1]; 0 without recurrent layers."""
        usable = self._states.num_usable
        return (usable - self._states.num_free) / usable if usable else 0.0

    def lookup(self, request: Request) -> PrefixHit:
        """What the cache already holds of a request's tokens: nothing, as computed blocks are not indexed."""
        return PrefixHit()

    def admit(self, request: Request, hit: PrefixHit, num_tokens: int) -> Allocation | None:
        """Gives a request its blocks and its state, all or nothing (C3).

        Args:
            request: owns nothing yet.
            hit: from `lookup`.
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
        if num_blocks > self._blocks.num_free or (needs_state and not self._states.num_free):
            return None
        state_id = self._states.take(1)[0] if needs_state else RESERVED_ID
        allocation = Allocation(self._blocks.take(num_blocks), state_id)
        self._owned[request.request_id] = allocation
        # The caller's copy: what is owned changes here only.
        return Allocation(list(allocation.block_ids), state_id)

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
        if num_missing > self._blocks.num_free:
            return None
        new_ids = self._blocks.take(num_missing)
        owned += new_ids
        return new_ids

    def release(self, request_id: str) -> None:
        """Takes everything back from a request: the only way to free, harmless when repeated (C4)."""
        allocation = self._owned.pop(request_id, None)
        if allocation is None:
            return
        # Reversed, so that the pool hands them out again in the same order.
        self._blocks.give_back(reversed(allocation.block_ids))
        if allocation.state_id != RESERVED_ID:
            self._states.give_back([allocation.state_id])

    def check_integrity(self) -> None:
        """Counts every id of both pools (C1, C2).

        Raises:
            IntegrityError: naming ids that are lost, owned twice, both free and owned, or reserved.
        """
        owned_blocks = [block for allocation in self._owned.values() for block in allocation.block_ids]
        _check_pool("block", self._num_blocks, self._blocks.free_ids(), owned_blocks)
        states = [allocation.state_id for allocation in self._owned.values()]
        if self.spec.has_states:
            _check_pool("state", self._num_states, self._states.free_ids(), states)
        elif any(state_id != RESERVED_ID for state_id in states):
            raise IntegrityError("A state is owned although the model has no recurrent layers.")


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
