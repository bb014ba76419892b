"""Who gets a request: each policy is a function of the candidates' figures and the call, with a reason."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from qanat.core.errors import ConfigError
from qanat.router.model import Call, Endpoint
from qanat.router.prefixes import PrefixMemory, known_share, prefix_hashes

MAX_AHEAD = 4
"""So many more requests than the idlest may an endpoint have before its known prefix no longer counts."""


class Choice(NamedTuple):
    """An endpoint, and why it was chosen: for the access log and the client."""

    endpoint: Endpoint
    reason: str


class Policy(Protocol):
    """Chooses among candidates, of which there is at least one; all of them may serve the call."""

    def choose(self, candidates: Sequence[Endpoint], call: Call) -> Choice:
        """The one that gets the call."""

    def given(self, endpoint: Endpoint, call: Call) -> None:
        """The endpoint has got the call, by this policy's choice or otherwise."""

    def forget(self, endpoint: Endpoint) -> None:
        """The endpoint lost what it knew: it was removed or started anew."""


def load(endpoint: Endpoint) -> tuple[float, float, int]:
    """What is compared: tokens and requests for each unit of weight, then whose turn is longest ago."""
    return (
        endpoint.num_outstanding_tokens / endpoint.weight,
        endpoint.num_running / endpoint.weight,
        endpoint.last_turn,
    )


class LeastTokens:
    """The endpoint with the fewest tokens yet to compute, for its weight; among equals each in its turn."""

    def choose(self, candidates: Sequence[Endpoint], call: Call) -> Choice:
        """See Policy."""
        if len(candidates) == 1:
            return Choice(candidates[0], "only-one")
        return Choice(min(candidates, key=load), "least-tokens")

    def given(self, endpoint: Endpoint, call: Call) -> None:
        """See Policy."""

    def forget(self, endpoint: Endpoint) -> None:
        """See Policy."""


class PowerOfTwo(LeastTokens):
    """The less loaded of two drawn at random: as good as the least loaded where figures are a little old."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()

    def choose(self, candidates: Sequence[Endpoint], call: Call) -> Choice:
        """See Policy."""
        if len(candidates) == 1:
            return Choice(candidates[0], "only-one")
        return Choice(min(self._rng.sample(candidates, 2), key=load), "power-of-two")


class PrefixAffinity(LeastTokens):
    """The endpoint that would be done first, where what it has in its cache need not be computed again.

    What is compared is the outstanding tokens plus those of the prompt that are not known there, for the weight. An
    endpoint that is more than `max_ahead` requests ahead of the idlest is left out, whatever it knows.
    """

    def __init__(self, max_ahead: int = MAX_AHEAD, capacity: int | None = None) -> None:
        self._max_ahead = max_ahead
        self._capacity = capacity
        self._memories: dict[Endpoint, PrefixMemory] = {}

    def choose(self, candidates: Sequence[Endpoint], call: Call) -> Choice:
        """See Policy."""
        hashes = prefix_hashes(call)
        if len(candidates) == 1 or not hashes:
            return LeastTokens.choose(self, candidates, call)
        limit = min(each.num_running / each.weight for each in candidates) + self._max_ahead
        best: tuple[float, tuple[float, float, int]] | None = None
        chosen, share = candidates[0], 0.0
        for each in candidates:
            if each.num_running / each.weight > limit:
                continue
            memory = self._memories.get(each)
            known = known_share(memory.num_known(hashes), len(hashes)) if memory else 0.0
            cost = (each.num_outstanding_tokens + call.num_prompt_tokens * (1 - known)) / each.weight
            if best is None or (cost, load(each)) < best:
                best, chosen, share = (cost, load(each)), each, known
        return Choice(chosen, f"prefix-{share:.0%}" if share else "prefix-none,least-tokens")

    def given(self, endpoint: Endpoint, call: Call) -> None:
        """See Policy."""
        memory = self._memories.get(endpoint)
        if memory is None:
            memory = PrefixMemory(self._capacity) if self._capacity else PrefixMemory()
            self._memories[endpoint] = memory
        memory.add(prefix_hashes(call))

    def forget(self, endpoint: Endpoint) -> None:
        """See Policy."""
        self._memories.pop(endpoint, None)


class SessionAffinity(LeastTokens):
    """The same endpoint for all requests of a session, by rendezvous hashing: any router chooses alike.

    When an endpoint goes, its sessions alone move; when one comes, it takes its share by weight of each other's.
    """

    def choose(self, candidates: Sequence[Endpoint], call: Call) -> Choice:
        """See Policy."""
        session = call.session
        if session is None:
            return LeastTokens.choose(self, candidates, call)
        return Choice(max(candidates, key=lambda each: rendezvous(session, each)), "session")


def rendezvous(session: str, endpoint: Endpoint) -> float:
    """How strongly a session is drawn to an endpoint; the strongest has it with a chance proportional to its weight."""
    digest = hashlib.blake2b(f"{session}\0{endpoint.name}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
    return endpoint.weight / -math.log(uniform)


POLICIES: dict[str, Callable[[], Policy]] = {
    "least-tokens": LeastTokens,
    "power-of-two": PowerOfTwo,
    "prefix": PrefixAffinity,
    "session": SessionAffinity,
}
"""By the name that --policy takes."""


def policy_named(name: str) -> Policy:
    """A fresh policy.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in POLICIES:
        raise ConfigError(f"--policy {name}: take one of {', '.join(POLICIES)}.", param="--policy")
    return POLICIES[name]()
