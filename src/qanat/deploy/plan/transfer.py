"""Prefill and decode apart: connector, its ports and sizes, and the proxy in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.settings import Connector
from qanat.deploy.knowledge.versions import Presence, is_in_range
from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Engine
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.model import Proxy
from qanat.deploy.plan.subject import Subject
from qanat.deploy.plan.wish import Wish

QANAT_ROUTER = "qanat router"
KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
RESOURCES = "/etc/hixlep"
"""Description of a 950 host's endpoints; its mount is a fact of the chip."""


def choose_connector(wish: Wish, subject: Subject, knowledge: Knowledge, advice: Advice) -> Connector:
    """The connector: what was asked for, if it can carry this model, else the practice for it.

    Raises:
        ImpossibleWish: unknown, for another platform, or not able to carry this model in this release.
    """
    name = str(advice.take("connector", wish.connector))
    entries = knowledge.connectors.entries
    able = [one for one in entries.values() if _obstacle(one, subject, knowledge) is None]
    candidates = [msgspec.structs.replace(wish, connector=one.name) for one in able]
    candidates.append(msgspec.structs.replace(wish, connector=None, image=None))
    if name not in entries:
        why = f"--connector {name}: no known connector; there are {', '.join(entries)}."
        raise ImpossibleWish(why, param="--connector", candidates=candidates)
    reason = _obstacle(entries[name], subject, knowledge)
    if reason is not None:
        why = f"connector {name} is not possible: {reason}."
        raise ImpossibleWish(why, param="--connector", candidates=candidates)
    return entries[name]


def _obstacle(connector: Connector, subject: Subject, knowledge: Knowledge) -> str | None:
    version = subject.version
    if connector.is_upstream:
        return "it is upstream's connector for GPUs"
    if connector.proxy is None:
        return "it shares a pool of caches and needs a store beside it, which is not planned here"
    if knowledge.connectors.presence(connector.name, version) is not Presence.PRESENT:
        return f"{version} does not have it"
    since = connector.hybrid_since
    if subject.model.is_hybrid and (since is None or not is_in_range(version, since, None)):
        return f"it carries recurrent states from {since} on, and {version} runs"
    is_compressed = "c8" in subject.weights.variant
    if is_compressed and connector.direction == "pull":
        return "it cannot carry a cache of 8 bits"
    return None


def transfer_flags(
    engine: Engine, engines: Sequence[Engine], connector: Connector, subject: Subject
) -> dict[str, Any]:
    """--kv-transfer-config of an engine, and what goes with it."""
    sizes: dict[str, Any] = {one.role: {"dp_size": one.shape.dp, "tp_size": one.shape.tp} for one in engines}
    if RESOURCES in subject.chip.mounts:
        sizes["ascend_local_comm_res_path"] = RESOURCES
    transfer = {
        "kv_connector": connector.name,
        "kv_role": KV_ROLES[engine.role],
        "kv_port": str(engine.advice.take("kv_port")),
        "kv_connector_extra_config": sizes,
    }
    flags: dict[str, Any] = {"kv-transfer-config": transfer}
    if subject.model.is_hybrid:
        flags["disable-hybrid-kv-cache-manager"] = False
    return flags


def choose_proxy(wish: Wish, connector: Connector, node: str, port: int, advice: Advice) -> Proxy:
    """The proxy that speaks the connector's protocol."""
    program = QANAT_ROUTER if wish.proxy == "qanat" else str(connector.proxy)
    if wish.proxy == "qanat":
        advice.state("proxy", program)
    else:
        advice.take("proxy")
        advice.compute("proxy", program)
    return Proxy(program=program, connector=connector.name, node=node, port=port)
