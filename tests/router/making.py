"""Endpoints and calls for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from qanat.router.calls import read_call
from qanat.router.model import Call, Endpoint, EndpointState, Header, Role


def endpoint(name: str = "a", role: Role = Role.ANY, **figures: Any) -> Endpoint:
    return Endpoint(name, "127.0.0.1", 1000 + sum(name.encode()), role=role, **figures)


def call(fields: dict[str, Any] | None = None, headers: tuple[Header, ...] = (), **changes: Any) -> Call:
    body = msgspec.json.encode(fields) if fields is not None else b""
    made = Call("1", "POST", "/v1/completions", headers, body)
    read_call(made)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


READY, DOWN = EndpointState.READY, EndpointState.DOWN


class Clock:
    """A clock that is told what time it is."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
