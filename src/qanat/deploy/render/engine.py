"""The command line and the environment of a node's engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qanat.deploy.knowledge.kinds.settings import EngineVariable
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.node_settings import FIRST_ADDRESS_FLAGS, FIRST_ADDRESS_VARIABLES
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import first_node
from qanat.deploy.render.addresses import ANY_ADDRESS, ANY_IPV4, ANY_IPV6, is_ipv6
from qanat.deploy.render.model import Variable, Word
from qanat.deploy.rendered.env_values import address_variable, interface_variable

HOST_FLAG = "host"
TRANSFER_FLAG = "kv-transfer-config"
EXECUTOR_FLAG = "distributed-executor-backend"
MAX_JSON_WIDTH = 96


@dataclass(frozen=True)
class EngineFlag:
    """A flag of `vllm serve`.

    Attributes:
        name: with its dashes; of a switch that is off the --no- form.
        words: its values; none for a switch.
        json: the value of a JSON argument; None for any other.
    """

    name: str
    words: tuple[Word, ...] = ()
    json: Mapping[str, Any] | None = None


def engine_settings(plan: Plan, node: Node) -> dict[str, Any]:
    """The flags of a node as in the plan, those of the node over those of its role."""
    flags = {**plan.role(node.role).flags, **node.flags}
    host = plan.role(node.role).flags.get(HOST_FLAG)
    if host is not None and flags.get(HOST_FLAG) == ANY_IPV4:
        # What was asked for counts more than what every node listens on where nothing is.
        flags[HOST_FLAG] = host
    return flags


def engine_flags(plan: Plan, node: Node) -> list[EngineFlag]:
    """The flags of `vllm serve` on a node, in the order to write them; addresses are variables of env.sh."""
    found = []
    for name, value in engine_settings(plan, node).items():
        if value is None:
            continue
        if isinstance(value, bool):
            found.append(EngineFlag(f"--{name}" if value else f"--no-{name}"))
        elif isinstance(value, Mapping):
            found.append(EngineFlag(f"--{name}", json=value))
        else:
            values = value if isinstance(value, list | tuple) else (value,)
            words = tuple(_flag_word(plan, node, name, str(one)) for one in values)
            found.append(EngineFlag(f"--{name}", words))
    return found


def _flag_word(plan: Plan, node: Node, name: str, text: str) -> Word:
    if name == HOST_FLAG and text in ("", node.address):
        return Variable(address_variable(node))
    if name == HOST_FLAG and text == ANY_IPV4 and is_ipv6(plan):
        return ANY_IPV6
    if name in FIRST_ADDRESS_FLAGS:
        first = first_node(plan, node)
        if text in ("", first.address):
            return Variable(address_variable(first))
    return text


def stated_host(plan: Plan, node: Node) -> str | None:
    """The one address that the engine of a node was told to listen on, if it is another than the node's own."""
    for flag in engine_flags(plan, node):
        if flag.name == f"--{HOST_FLAG}" and flag.words:
            value = flag.words[0]
            return value if isinstance(value, str) and value not in ANY_ADDRESS else None
    return None


def engine_environment(plan: Plan, node: Node) -> dict[str, Word]:
    """The variables of a node's engine; addresses and interfaces are variables of env.sh."""
    own = {**plan.role(node.role).env, **node.env}
    executor = engine_settings(plan, node).get(EXECUTOR_FLAG)
    for entry in load_knowledge().tables["engine_variables"].entries.values():
        assert isinstance(entry, EngineVariable)
        if entry.beside in own or (executor is not None and entry.executor == executor):
            own.setdefault(entry.name, entry.value)
    return {name: _environment_word(plan, node, name, value) for name, value in own.items()}


def _environment_word(plan: Plan, node: Node, name: str, text: str) -> Word:
    if name.endswith("_SOCKET_IFNAME") and text in ("", node.interface):
        return Variable(interface_variable(node))
    if name in FIRST_ADDRESS_VARIABLES:
        first = first_node(plan, node)
        return Variable(address_variable(first)) if text in ("", first.address) else text
    if name.endswith("_IP") and text in ("", node.address):
        return Variable(address_variable(node))
    return text


def variables_used(plan: Plan, node: Node) -> list[str]:
    """Variables of env.sh without which a node's engine cannot start."""
    words: list[Word] = [one for flag in engine_flags(plan, node) for one in flag.words]
    words += engine_environment(plan, node).values()
    return list(dict.fromkeys(one.name for one in words if isinstance(one, Variable)))


def json_text(value: Any, indent: str = "", width_before: int = 0) -> str:
    """JSON for people: on one line where it fits, else a key a line; lists of plain values stay on one line.

    Args:
        value: what JSON can hold.
        indent: of the line it begins on.
        width_before: characters before it on that line, without the indent.
    """
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, Mapping) or len(indent) + width_before + len(flat) <= MAX_JSON_WIDTH:
        return flat
    inner = indent + "  "
    members = []
    for key, one in value.items():
        name = json.dumps(str(key), ensure_ascii=False) + ": "
        members.append(inner + name + json_text(one, inner, len(name)))
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


def is_disaggregated(plan: Plan, node: Node) -> bool:
    """Whether a node's engine takes part in disaggregated serving."""
    return TRANSFER_FLAG in engine_settings(plan, node)


def uses_ray(plan: Plan, node: Node) -> bool:
    """Whether a node's engine is spread by Ray."""
    return engine_settings(plan, node).get(EXECUTOR_FLAG) == "ray"
