"""A plan as text: what it comes to on one screen, then memory, then every choice with its reason."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from qanat.deploy.plan.advice import WISH
from qanat.deploy.plan.model import Choice, Node, Plan, Role
from qanat.deploy.plan.places import first_node
from qanat.deploy.plan.script import flag_words
from qanat.deploy.sizing.memory import gib

WIDTH = 110
LEARNT = {
    "source": "read in source",
    "documentation": "documented",
    "issue": "told in an issue",
    "tested": "tried",
    "computed": "computed",
    "unverified": "not verified",
}
"""How a fact was learnt, in words."""


def text_report(plan: Plan) -> str:
    """Everything about a plan, the result first."""
    parts = [
        *_summary(plan),
        *(line for role in plan.roles for line in _settings(plan, role)),
        *(line for role in plan.roles for line in _memory(plan, role)),
        "",
        "Choices",
        *(line for choice in plan.choices for line in _choice(choice)),
    ]
    if plan.warnings:
        parts += [
            "",
            "Warnings",
            *(line for text in plan.warnings for line in _wrapped(text, "  - ", "    ")),
        ]
    return "\n".join(parts)


def json_report(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, as it is written to YAML."""
    data: dict[str, Any] = msgspec.to_builtins(plan)
    return data


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(plan: Plan) -> Iterator[str]:
    yield f"{plan.model} in {plan.weights} on {plan.chip}: {plan.topology.value}, {plan.wish.scenario.value}"
    rows = [("image", plan.image), ("weights", plan.model_source), ("name", plan.served_model_name)]
    if plan.driver:
        rows.append(("driver", f"{plan.driver}, with CANN {plan.cann}"))
    for role in plan.roles:
        rows.append((role.name, _role_in_words(role)))
    for node in plan.nodes:
        rows.append((node.name, _node_in_words(node)))
    if plan.proxy is not None:
        rows.append(("proxy", f"{plan.proxy.program} on {plan.proxy.node}, port {plan.proxy.port}"))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield f"  {name:{width}}  {text}"


def _role_in_words(role: Role) -> str:
    tp, dp = role.tensor_parallel_size, role.data_parallel_size
    nodes = "1 node" if role.nodes_per_instance == 1 else f"{role.nodes_per_instance} nodes"
    engines = "" if role.num_instances == 1 else f"{role.num_instances} engines, each "
    sequences = int(role.flags["max-num-seqs"]) * dp
    each = " each" if role.num_instances > 1 else ""
    context = role.flags["max-model-len"]
    requests = "1 request" if sequences == 1 else f"{sequences} requests at once"
    return f"{engines}{nodes}, TP {tp} x DP {dp}; {requests}{each}, up to {context} tokens long"


def _node_in_words(node: Node) -> str:
    npus = f"NPUs {node.npus[0]} to {node.npus[-1]}" if len(node.npus) > 1 else f"NPU {node.npus[0]}"
    parts = [npus]
    if node.address:
        parts.append(node.address)
    parts.append(f"port {node.flags['port']}" if "port" in node.flags else "answers no requests")
    return ", ".join(parts)


def _settings(plan: Plan, role: Role) -> Iterator[str]:
    own = " of " + role.name if len(plan.roles) > 1 else ""
    yield ""
    yield f"Flags{own}"
    for name, value in role.flags.items():
        yield "  " + shlex.join(flag_words({name: value}))
    yield ""
    yield f"Variables{own}"
    for name, text in role.env.items():
        yield f"  {name}={shlex.quote(text)}"
    extra = [node for node in plan.nodes if node.role == role.name and len(plan.nodes) > 1]
    if extra:
        yield ""
        yield f"Of each node{own}"
        for node in extra:
            flags = {**node.flags}
            if flags.get("data-parallel-address") == "":
                flags["data-parallel-address"] = f"ADDRESS_OF_{first_node(plan, node).name}"
            words = shlex.join(flag_words(flags))
            yield from _wrapped(f"{node.name}: {words}", "  ", "    ")


def _memory(plan: Plan, role: Role) -> Iterator[str]:
    memory = role.memory
    own = f", {role.name}" if len(plan.roles) > 1 else ""
    share = role.flags["gpu-memory-utilization"]
    yield ""
    yield f"Memory of one NPU{own}: {gib(memory.total_bytes)}, budget {gib(memory.budget_bytes)} ({share:g})"
    rows = [
        (item.name, item.size_bytes, "in budget" if item.is_in_budget else "on top", item.how)
        for item in memory.items
    ]
    needed = (
        f"{gib(memory.needed_pool_bytes)} needed; {memory.num_blocks} blocks of {memory.block_tokens} tokens"
    )
    place = sum(item.is_in_budget for item in memory.items)
    rows.insert(place, ("cache", memory.pool_bytes, "in budget", needed))
    rows.append(("head-room", memory.head_room_bytes, "on top", "stays free"))
    width = max(len(name) for name, *_ in rows)
    for name, size_bytes, where, how in rows:
        first = f"  {name:{width}}  {gib(size_bytes):>9}  {where:9}  "
        yield from _wrapped(how, first, " " * len(first))
    yield (
        f"  longest request {memory.longest_context} tokens; requests of {role.flags['max-model-len']} tokens at once, "
        f"per rank: {memory.most_sequences}"
    )


def _choice(choice: Choice) -> Iterator[str]:
    own = f" ({choice.role})" if choice.role else ""
    yield from _wrapped(f"{choice.what}{own} = {choice.value}", "  ", "      ")
    reason = choice.reason[:1].upper() + choice.reason[1:].rstrip(".")
    learnt = "" if choice.source == WISH else f"; {LEARNT[choice.confidence]}"
    text = f"{reason}. [{choice.source}{learnt}]"
    if choice.changes_if:
        text += f" Changes with: {choice.changes_if.rstrip('.')}."
    yield from _wrapped(text, "      ", "      ")
