"""One reading of a running server: its /metrics, and the decisions of its plan where it has any."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from qanat.bench.client.client import Client, Reply
from qanat.bench.client.recording import Store
from qanat.bench.online.server_metrics import PREFIX
from qanat.bench.online.target import Target, json_of
from qanat.core.decision import Decision
from qanat.deploy.prometheus import Exposition, read_exposition


@dataclass(frozen=True)
class Reading:
    """What a server said at a moment.

    Attributes:
        moment_s: of the monotonic clock.
        metrics: empty if it could not be read.
        failure: why not; empty if it could.
        decisions: of its plan; None from a server that tells none, or where they were not asked for.
    """

    moment_s: float
    metrics: Exposition
    failure: str = ""
    decisions: tuple[Decision, ...] | None = None


async def take_reading(
    target: Target, tls: ssl.SSLContext | None, timeout_s: float, *, has_plan: bool
) -> Reading:
    """Reads a server once, over a connection that is closed after.

    Args:
        target: the server.
        tls: for https.
        timeout_s: for each request.
        has_plan: whether to ask for its plan too.
    """
    client = Client(target.address, tls, Store(), timeout_s)
    try:
        reply = await client.ask(target.get("/metrics"))
        moment_s = time.monotonic()
        if not reply.is_ok:
            return Reading(moment_s, Exposition(), target.hide(_failure(reply)))
        metrics = read_exposition(reply.body.decode(errors="replace"))
        if not any(name.startswith(PREFIX) for name in metrics.samples):
            return Reading(moment_s, Exposition(), f"its /metrics have no figures that begin with {PREFIX}")
        decisions = decisions_of(json_of(await client.ask(target.get("/v1/plan")))) if has_plan else None
        return Reading(moment_s, metrics, decisions=decisions)
    finally:
        client.close()


def decisions_of(plan: object) -> tuple[Decision, ...] | None:
    """Decisions in the answer of /v1/plan; None if there are none that can be read."""
    listed: Any = plan.get("decisions") if isinstance(plan, dict) else None
    try:
        return msgspec.convert(listed, tuple[Decision, ...])
    except msgspec.ValidationError:
        return None


def _failure(reply: Reply) -> str:
    if reply.failure:
        return f"{reply.failure}: {reply.message}"
    if reply.status in (401, 403):
        return f"GET /metrics needs a key (HTTP {reply.status}); --api-key-env names its variable"
    return f"GET /metrics has the status {reply.status}"
