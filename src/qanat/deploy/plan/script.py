"""A plan as plain scripts, so that the linter can read it; `qanat deploy render` writes the real ones."""

from __future__ import annotations

import json
import shlex
from typing import Any

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import first_node, proxy_node
from qanat.deploy.sources.documents import read_document
from qanat.deploy.sources.launch import Document

NO_ADDRESS = "192.0.2.{}"
"""For nodes whose address nobody said: of the range for documentation."""
NO_INTERFACE = "eth0"


def documents(plan: Plan) -> list[Document]:
    """One script a node, and one of the proxy."""
    found = [read_document(f"plan/{node.name}.sh", node_script(plan, node)) for node in plan.nodes]
    if plan.proxy is not None and plan.proxy.program.endswith(".py"):
        found.append(read_document("plan/proxy.sh", proxy_script(plan)))
    return found


def node_script(plan: Plan, node: Node) -> str:
    """Variables and `vllm serve` of a node."""
    env = {**plan.role(node.role).env, **node.env}
    flags = {**plan.role(node.role).flags, **node.flags}
    lines = ["#!/bin/bash", f"# on {plan.chip}, image {plan.image}"]
    for name, value in env.items():
        if not value:
            value = _address(plan, node) if name == "HCCL_IF_IP" else NO_INTERFACE
        lines.append(f"export {name}={shlex.quote(value)}")
    if "data-parallel-address" in flags:
        flags["data-parallel-address"] = _address(plan, first_node(plan, node))
    words = " ".join(shlex.quote(word) for word in flag_words(flags))
    lines.append(f"vllm serve {shlex.quote(plan.model_source)} {words}")
    return "\n".join(lines) + "\n"


def flag_words(flags: dict[str, Any]) -> list[str]:
    """Flags as words of a command line: switches alone, JSON compact."""
    words: list[str] = []
    for name, value in flags.items():
        if value is True or value is False:
            words.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, dict | list):
            words += [f"--{name}", json.dumps(value)]
        else:
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def proxy_script(plan: Plan) -> str:
    """The example proxy in front of all engines."""
    assert plan.proxy is not None
    words = ["python3", plan.proxy.program]
    for flag, role in (("--prefiller", "prefill"), ("--decoder", "decode")):
        heads = [node for node in plan.nodes if node.role == role and node.rank == 0]
        words += [f"{flag}-hosts", *(_address(plan, node) for node in heads)]
        words += [f"{flag}-ports", *(str(node.flags["port"]) for node in heads)]
    node = proxy_node(plan, plan.proxy)
    words += ["--host", _address(plan, node), "--port", str(plan.proxy.port)]
    return f"#!/bin/bash\n# on {plan.chip}\n{shlex.join(words)}\n"


def _address(plan: Plan, node: Node) -> str:
    return node.address or NO_ADDRESS.format(plan.nodes.index(node) + 1)
