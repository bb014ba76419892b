"""The live set of endpoints: who may be chosen now follows it, whatever the order of events was."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container

from qanat.core.errors import NotFoundError
from qanat.router.breaker import Breaker, BreakerRules, BreakerState
from qanat.router.errors import NoEndpointError, UnknownEndpointError
from qanat.router.http.errors import UpstreamUnreachable
from qanat.router.lease import Lease
from qanat.router.member import Member
from qanat.router.model import Call, Endpoint, EndpointState, Role
from qanat.router.policies import Choice, LeastTokens, Policy

_LOG = logging.getLogger(__name__)

DEFAULT_OUTPUT_TOKENS = 256
"""Expected of an answer before any was seen."""
IN_SERVICE = (EndpointState.READY, EndpointState.HALF_OPEN)
_MEAN_SHARE = 0.05
_MAX_REMEMBERED = 1024
_RETRY_AFTER_S = 2


class Pool:
    """Endpoints by name, chosen by a policy, counted by leases.

    Args:
        policy: for requests that are served whole, and for prefill; decode goes to who has the fewest tokens left.
        max_running: requests at once for each endpoint; None for any number.
        clock: for breakers; seconds that only go forward.
    """

    def __init__(
        self,
        policy: Policy,
        max_running: int | None = None,
        rules: BreakerRules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self.max_running = max_running
        self.members: dict[Endpoint, Member] = {}
        self.num_reserved = 0
        self.mean_output_tokens = float(DEFAULT_OUTPUT_TOKENS)
        self._decode_policy = LeastTokens()
        self._rules = rules or BreakerRules()
        self._clock = clock
        self._by_name: dict[str, Endpoint] = {}
        self._in_service: dict[tuple[Role, str | None], list[Endpoint]] = {}
        self._on_trial: list[Endpoint] = []
        self._turn = 0
        self._listeners: list[Callable[[], None]] = []
        self._added: list[Callable[[Endpoint], None]] = []
        self._removed: list[Callable[[Endpoint], None]] = []
        self._doubted: list[Callable[[Endpoint], None]] = []

    # Who there is.

    def get(self, name: str) -> Endpoint:
        """The endpoint of that name.

        Raises:
            UnknownEndpointError: there is none.
        """
        if name not in self._by_name:
            raise UnknownEndpointError(f"there is no endpoint {name}; GET /router/endpoints lists them")
        return self._by_name[name]

    def find(self, name: str) -> Endpoint | None:
        """The endpoint of that name, if there is one."""
        return self._by_name.get(name)

    def add(self, endpoint: Endpoint) -> None:
        """From now on it may be chosen. Its name must be new."""
        if endpoint.name in self._by_name:
            raise ValueError(f"there is an endpoint {endpoint.name} already")
        self._by_name[endpoint.name] = endpoint
        self.members[endpoint] = Member(endpoint, Breaker(self._rules))
        endpoint.last_turn = self._turn
        self.refresh(endpoint)
        for listener in self._added:
            listener(endpoint)

    def drain(self, endpoint: Endpoint, is_draining: bool = True) -> None:
        """It gets nothing new, and is removed when the last request on it ends; False takes that back."""
        self.members[endpoint].is_draining = is_draining
        self.refresh(endpoint)
        self._remove_if_drained(endpoint)

    def remove(self, endpoint: Endpoint, why: str = "it was removed") -> None:
        """It is gone now; requests that run on it are told."""
        member = self.members.pop(endpoint, None)
        if member is None:
            return
        del self._by_name[endpoint.name]
        self.policy.forget(endpoint)
        for lease in list(member.leases):
            lease.lost(why)
        for listener in self._removed:
            listener(endpoint)
        self.changed()

    def _remove_if_drained(self, endpoint: Endpoint) -> None:
        member = self.members.get(endpoint)
        if member is not None and member.is_draining and not member.leases:
            self.remove(endpoint)

    # What happened to one.

    def failed(self, endpoint: Endpoint, error: Exception | str) -> None:
        """A request failed by the endpoint's fault: no connection, a broken answer, silence, a 5xx.

        One that cannot be reached is out of service at once, until it is found back.
        """
        member = self.members.get(endpoint)
        if member is None:
            return
        member.breaker.failed(self._clock(), str(error))
        if isinstance(error, UpstreamUnreachable):
            self.set_health(endpoint, False, str(error))
        elif member.breaker.state is not BreakerState.CLOSED:
            member.why = str(error)
        self.refresh(endpoint)
        for listener in self._doubted:
            listener(endpoint)

    def succeeded(self, endpoint: Endpoint) -> None:
        """A request was answered. One that is out of service is looked at now; a single answer may be an old one's."""
        member = self.members.get(endpoint)
        if member is None:
            return
        was = member.breaker.state
        member.breaker.succeeded(self._clock())
        if member.breaker.state is not was:
            self.refresh(endpoint)
        if not member.is_healthy:
            for listener in self._doubted:
                listener(endpoint)

    def set_health(
        self, endpoint: Endpoint, is_healthy: bool, why: str = "", *, is_silent: bool = False
    ) -> None:
        """What the health checks found.

        Args:
            endpoint: which one.
            is_healthy: it may get requests.
            why: what was found, if it may not.
            is_silent: it neither answers nor refuses: the requests that run on it are told that nothing more will
                come. One that refuses new connections may still finish what it has.
        """
        member = self.members.get(endpoint)
        if member is None:
            return
        has_changed = member.is_healthy != is_healthy
        member.is_healthy = is_healthy
        member.is_worth_a_try = not is_silent
        member.why = why
        if has_changed:
            if is_healthy:
                member.breaker.reset()
            self.refresh(endpoint)
        if is_silent:
            for lease in list(member.leases):
                lease.lost(why)

    def tick(self) -> None:
        """Time has passed: breakers that were open long enough let a trial through."""
        now_s = self._clock()
        for endpoint, member in self.members.items():
            if member.breaker.state is BreakerState.OPEN:
                member.breaker.tick(now_s)
                if member.breaker.state is not BreakerState.OPEN:
                    self.refresh(endpoint)

    def refresh(self, endpoint: Endpoint) -> None:
        """The endpoint's role, models or reasons have changed: its state, and who may be chosen, follow."""
        if member := self.members.get(endpoint):
            was, endpoint.state = endpoint.state, member.state()
            if endpoint.state is not was:
                level = logging.WARNING if endpoint.state is EndpointState.DOWN else logging.INFO
                why = member.why.removeprefix(f"endpoint {endpoint.name}").lstrip(": ")
                why = f": {why}" if why else ""
                _LOG.log(level, "endpoint %s is %s%s", endpoint.name, endpoint.state.value, why)
        self.changed()

    def changed(self) -> None:
        """Who may be chosen has changed, or somebody has room again."""
        self._in_service.clear()
        self._on_trial = [each for each in self.members if each.state is EndpointState.HALF_OPEN]
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Tells whenever somebody may have room who had none."""
        self._listeners.append(listener)

    def on_added(self, listener: Callable[[Endpoint], None]) -> None:
        """Tells of every endpoint that comes."""
        self._added.append(listener)

    def on_removed(self, listener: Callable[[Endpoint], None]) -> None:
        """Tells of every endpoint that is gone."""
        self._removed.append(listener)

    def on_doubt(self, listener: Callable[[Endpoint], None]) -> None:
        """Tells of every endpoint that a request found otherwise than it seemed, so that it is looked at now."""
        self._doubted.append(listener)

    # Who gets a request.

    def choose(self, call: Call, role: Role = Role.ANY, exclude: Container[Endpoint] = ()) -> Choice:
        """Who gets the call, of those of exactly this role; lease it before anything else is awaited.

        One on trial goes first, one at a time. When nobody is in service, one that refused connections is tried:
        it may be back before the next health check.

        Args:
            call: the request.
            role: what the endpoint is to do of it.
            exclude: endpoints that have failed this call already.

        Raises:
            NoEndpointError: nobody can take it now; says when to come again.
            NotFoundError: no endpoint has the model.
        """
        for each in self._on_trial:
            is_free = self.members[each].trial is None
            if is_free and each.role is role and each not in exclude and fits(each, call):
                return self._chosen(Choice(each, "trial"))
        candidates = self._candidates(role, call.model)
        if exclude:
            candidates = [each for each in candidates if each not in exclude]
        if not candidates:
            return self._chosen(self._last_resort(call, role, exclude))
        limit = self.max_running
        if limit is not None:
            candidates = [each for each in candidates if each.num_running < limit] or candidates
        policy = self._decode_policy if role is Role.DECODE else self.policy
        return self._chosen(policy.choose(candidates, call))

    def _chosen(self, choice: Choice) -> Choice:
        self._turn += 1
        choice.endpoint.last_turn = self._turn
        return choice

    def _candidates(self, role: Role, model: str | None) -> list[Endpoint]:
        key = (role, model)
        candidates = self._in_service.get(key)
        if candidates is None:
            if len(self._in_service) >= _MAX_REMEMBERED:
                self._in_service.clear()
            candidates = self._in_service[key] = [
                each
                for each in self.members
                if each.state is EndpointState.READY and each.role is role and fits_model(each, model)
            ]
        return candidates

    def _last_resort(self, call: Call, role: Role, exclude: Container[Endpoint]) -> Choice:
        hopes = [
            each
            for each, member in self.members.items()
            if each.state is EndpointState.DOWN
            and member.is_worth_a_try
            and each.role is role
            and each not in exclude
            and fits(each, call)
        ]
        if hopes:
            return Choice(min(hopes, key=lambda each: each.last_turn), "last-resort")
        raise self.nobody(call, role)

    def nobody(self, call: Call, role: Role) -> NoEndpointError | NotFoundError:
        """The error of a call that nobody can take."""
        if call.model is not None and not self.knows_model(call.model):
            return NotFoundError(
                f"no engine behind this router serves the model {call.model!r}; GET /v1/models lists what there is",
                param="model",
            )
        of_role = [each for each in self.members if each.role is role]
        kind = "" if role is Role.ANY else f"{role.value} "
        text = f"no {kind}engine can take the request now: " + (
            f"{len(of_role)} known, none in service" if of_role else "none is known"
        )
        now_s = self._clock()
        waits = [self.members[each].breaker.retry_after_s(now_s) for each in of_role]
        wait_s = math.ceil(min((each for each in waits if each > 0), default=_RETRY_AFTER_S))
        return NoEndpointError(f"{text}. Try again later.", retry_after_s=max(1, wait_s))

    def knows_model(self, model: str) -> bool:
        """Some endpoint serves it, or may: an endpoint whose models are unknown takes every name."""
        return not self.members or any(fits_model(each, model) for each in self.members)

    def of_role(self, role: Role) -> list[Endpoint]:
        """All endpoints of exactly this role, in service or not."""
        return [each for each in self.members if each.role is role]

    def roles_in_service(self) -> set[Role]:
        """Of those that get requests, on trial or not."""
        return {each.role for each in self.members if each.state in IN_SERVICE}

    @property
    def is_disaggregated(self) -> bool:
        """There are prefill or decode endpoints, in service or not."""
        return any(each.role is not Role.ANY for each in self.members)

    def num_room(self, call: Call) -> float:
        """How many more requests like this one find a place at once; infinite without a bound."""
        if self.max_running is None:
            return math.inf
        pairs = min(self._room(Role.PREFILL, call.model), self._room(Role.DECODE, call.model))
        return max(self._room(Role.ANY, call.model) + pairs - self.num_reserved, 0)

    def _room(self, role: Role, model: str | None) -> int:
        limit = self.max_running or 0
        return sum(max(limit - each.num_running, 0) for each in self._candidates(role, model))

    def has_hope(self, call: Call) -> bool:
        """Waiting makes sense: there is somebody in service whose requests end some day."""
        return bool(
            self._candidates(Role.ANY, call.model)
            or (self._candidates(Role.PREFILL, call.model) and self._candidates(Role.DECODE, call.model))
        )

    def lease(self, endpoint: Endpoint, call: Call) -> Lease:
        """Counts the call on the endpoint until the lease is left."""
        expected = min(call.max_tokens or math.inf, max(self.mean_output_tokens, 1.0))
        num_output_tokens = 1 if endpoint.role is Role.PREFILL else round(expected) * call.num_choices
        lease = Lease(endpoint, call, num_output_tokens, self._released)
        endpoint.num_served += 1
        if member := self.members.get(endpoint):
            member.leases.add(lease)
            if endpoint.state is EndpointState.HALF_OPEN and member.trial is None:
                member.trial = lease
        if endpoint.role is not Role.DECODE:
            self.policy.given(endpoint, call)
        return lease

    def _released(self, lease: Lease) -> None:
        if lease.num_tokens and lease.endpoint.role is not Role.PREFILL:
            self.mean_output_tokens += _MEAN_SHARE * (lease.num_tokens - self.mean_output_tokens)
        if member := self.members.get(lease.endpoint):
            member.leases.discard(lease)
            if member.trial is lease:
                member.trial = None
            if member.is_draining:
                self._remove_if_drained(lease.endpoint)
        self._tell()


def fits_model(endpoint: Endpoint, model: str | None) -> bool:
    """The endpoint serves the model, as far as is known."""
    return model is None or not endpoint.models or model in endpoint.models


def fits(endpoint: Endpoint, call: Call) -> bool:
    """The endpoint may serve the call."""
    return fits_model(endpoint, call.model)
