"""The routes under /router: endpoints seen, added, changed and removed while the router runs."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from qanat.core.errors import ConfigError, InvalidRequestError
from qanat.router.admission import Admission
from qanat.router.discovery import Membership
from qanat.router.endpoint_text import read_endpoint, read_endpoint_mapping
from qanat.router.errors import MethodError
from qanat.router.http.exchange import Downstream, respond
from qanat.router.model import Call, Endpoint, Role
from qanat.router.pool import Pool

PATH = "/router/endpoints"
INSTANCE_PATHS = ("/instances/add", "/instances/remove")
"""Of vllm-ascend's example proxy, so that scripts written for it work."""


class Admin:
    """Answers the admin routes; the application has checked the key."""

    def __init__(self, pool: Pool, membership: Membership, admission: Admission) -> None:
        self._pool = pool
        self._membership = membership
        self._admission = admission

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        """One call.

        Raises:
            QanatError: it is wrong; the application answers with it.
        """
        if call.path in INSTANCE_PATHS:
            _answer(downstream, 200, self._instances(call))
        elif call.method == "GET" and call.path == PATH:
            _answer(downstream, 200, self._overview())
        elif call.method == "POST" and call.path == PATH:
            endpoint, is_new = self._add(call)
            _answer(downstream, 201 if is_new else 200, self.describe(endpoint))
        elif call.method == "DELETE" and call.path.startswith(PATH + "/"):
            endpoint = self._pool.get(unquote(call.path.removeprefix(PATH + "/")))
            query = parse_qs(call.target.partition("?")[2])
            self._membership.remove(endpoint, at_once=query.get("now", ["false"])[-1] in ("true", "1"))
            _answer(downstream, 202, self.describe(endpoint))
        else:
            raise MethodError(
                f"GET and POST {PATH}, DELETE {PATH}/NAME are what there is, not {call.method} {call.path}"
            )

    def _overview(self) -> dict[str, Any]:
        return {
            "endpoints": [self.describe(each) for each in self._pool.members],
            "num_waiting": self._admission.num_waiting,
            "num_running": self._admission.num_inside,
        }

    def describe(self, endpoint: Endpoint) -> dict[str, Any]:
        """All that is known of an endpoint, as JSON."""
        member = self._pool.members.get(endpoint)
        return {
            "name": endpoint.name,
            "url": endpoint.url,
            "role": endpoint.role.value,
            "kind": endpoint.kind.value,
            "weight": endpoint.weight,
            "state": endpoint.state.value if member else "removed",
            "why": member.why if member else "",
            "breaker": member.breaker.state.value if member else None,
            "models": sorted(endpoint.models),
            "max_model_len": endpoint.max_model_len,
            "num_running": endpoint.num_running,
            "num_outstanding_tokens": endpoint.num_outstanding_tokens,
            "num_served": endpoint.num_served,
        }

    def _add(self, call: Call) -> tuple[Endpoint, bool]:
        fields = _fields(call)
        try:
            spec = read_endpoint_mapping(fields, "endpoint")
        except ConfigError as error:
            raise InvalidRequestError(error.message) from None
        other = self._pool.find(spec.name)
        if other is not None and self._membership.find(spec.place) is not other:
            raise InvalidRequestError(
                f"the name {spec.name} belongs to {other.url}; take another", param="name"
            )
        is_new = self._membership.add(spec)
        endpoint = self._membership.find(spec.place)
        assert endpoint is not None
        return endpoint, is_new

    def _instances(self, call: Call) -> dict[str, Any]:
        if call.method != "POST":
            raise MethodError(f"{call.path} takes POST")
        fields = _fields(call)
        role = {"prefill": Role.PREFILL, "decode": Role.DECODE}.get(str(fields.get("type")))
        if role is None:
            raise InvalidRequestError("type is prefill or decode", param="type")
        texts = fields.get("instances")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidRequestError("instances is a list of HOST:PORT", param="instances")
        try:
            specs = [read_endpoint(f"{text},role={role.value}", "instances") for text in texts]
        except ConfigError as error:
            raise InvalidRequestError(error.message, param="instances") from None
        for spec in specs:
            if call.path.endswith("add"):
                self._membership.add(spec)
            elif endpoint := self._membership.find(spec.place):
                self._membership.remove(endpoint)
        verb = "added" if call.path.endswith("add") else "removed, once they have finished what runs on them"
        return {
            "message": f"{verb}: {', '.join(spec.name for spec in specs)}",
            "current_prefill_instances": [each.address for each in self._pool.of_role(Role.PREFILL)],
            "current_decode_instances": [each.address for each in self._pool.of_role(Role.DECODE)],
        }


def _fields(call: Call) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(call.body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidRequestError(
            'the body is no JSON object; send one such as {"url": "http://10.0.0.1:8000"}'
        )
    return fields


def _answer(downstream: Downstream, status: int, value: dict[str, Any]) -> None:
    respond(downstream, status, msgspec.json.encode(value))
