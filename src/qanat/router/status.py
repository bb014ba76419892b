"""What the router says of itself and of the engines behind it: /health, /ready, /live, /metrics, /v1/models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from qanat.router.admission import Admission
from qanat.router.health import Monitor
from qanat.router.http.upstream import Upstream
from qanat.router.metrics import RouterMetrics, Sample
from qanat.router.model import Endpoint, EndpointState, Role
from qanat.router.pool import IN_SERVICE, Pool

RETRY_AFTER_S = 2


def is_serving(pool: Pool) -> bool:
    """A request would be answered: some engine does it all, or there is one of each half."""
    roles = pool.roles_in_service()
    return Role.ANY in roles or {Role.PREFILL, Role.DECODE} <= roles


def health(pool: Pool, *, is_draining: bool) -> dict[str, Any]:
    """The body of /health and /ready: how many engines of each role are in which state; no names."""
    states: dict[str, dict[str, int]] = {}
    for (role, state), count in Counter((each.role.value, each.state.value) for each in pool.members).items():
        states.setdefault(role, {})[state] = count
    word = "stopping" if is_draining else "ok" if is_serving(pool) else "no_engine"
    return {
        "status": word,
        "endpoints": states,
        "prefill_instances": len(pool.of_role(Role.PREFILL)),
        "decode_instances": len(pool.of_role(Role.DECODE)),
    }


def merged_models(pool: Pool, monitor: Monitor) -> list[dict[str, Any]]:
    """The models of all engines in service, each once; of several lengths the least, which every engine takes."""
    merged: dict[str, dict[str, Any]] = {}
    for endpoint, cards in monitor.models.cards.items():
        if endpoint.state not in IN_SERVICE:
            continue
        for card in cards:
            other = merged.setdefault(card["id"], dict(card))
            lengths = [each["max_model_len"] for each in (card, other) if each.get("max_model_len")]
            if lengths:
                other["max_model_len"] = min(lengths)
    return [merged[name] for name in sorted(merged)]


def add_gauges(metrics: RouterMetrics, pool: Pool, admission: Admission, upstream: Upstream) -> None:
    """The figures that are there to be asked for."""

    def of_each(value: Callable[[Endpoint], float]) -> Callable[[], Iterator[Sample]]:
        return lambda: (((each.name, each.role.value), value(each)) for each in pool.members)

    def states() -> Iterator[Sample]:
        for each in pool.members:
            for state in EndpointState:
                yield (each.name, each.role.value, state.value), float(each.state is state)

    labels = ("endpoint", "role")
    gauge = metrics.gauge
    gauge("endpoint_state", "1 for the state that the endpoint is in.", (*labels, "state"), states)
    gauge("endpoint_running", "Requests on the endpoint.", labels, of_each(lambda each: each.num_running))
    gauge(
        "endpoint_outstanding_tokens",
        "Tokens that these may still cost.",
        labels,
        of_each(lambda each: each.num_outstanding_tokens),
    )
    gauge("endpoint_served", "Requests it was given.", labels, of_each(lambda each: each.num_served))
    gauge(
        "endpoint_breaker_opened",
        "Times that its circuit breaker opened.",
        labels,
        of_each(lambda each: pool.members[each].breaker.num_opened),
    )
    gauge("endpoint_connections", "Open connections.", labels, of_each(upstream.num_connections))
    gauge("queue_waiting", "Requests in the router's queue.", (), lambda: [((), admission.num_waiting)])
    gauge("running", "Requests that were let in.", (), lambda: [((), admission.num_inside)])
