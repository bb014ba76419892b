"""What the pool knows of an endpoint beside its figures, and the state that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from qanat.router.breaker import Breaker, BreakerState
from qanat.router.lease import Lease
from qanat.router.model import Endpoint, EndpointState


@dataclass(slots=True, eq=False)
class Member:
    """What the pool knows of an endpoint beside its figures; `refresh` makes the endpoint's state of it.

    Attributes:
        is_draining: it finishes what it has and is then removed.
        is_healthy: what the health checks found last.
        is_worth_a_try: if not healthy: it answers or refuses at once, so that a try costs nothing and may find it back.
        why: the last reason for being out of service.
        leases: open ones.
        trial: of these, the one that tries whether it works again.
    """

    endpoint: Endpoint
    breaker: Breaker
    is_draining: bool = False
    is_healthy: bool = True
    is_worth_a_try: bool = True
    why: str = ""
    leases: set[Lease] = field(default_factory=set)
    trial: Lease | None = None

    def state(self) -> EndpointState:
        """What follows from all of it."""
        if self.is_draining:
            return EndpointState.DRAINING
        if not self.is_healthy or self.breaker.state is BreakerState.OPEN:
            return EndpointState.DOWN
        return (
            EndpointState.HALF_OPEN if self.breaker.state is BreakerState.HALF_OPEN else EndpointState.READY
        )
