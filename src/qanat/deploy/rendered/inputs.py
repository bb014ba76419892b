"""A plan as an input: a file, or a rendered folder with what was edited in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from qanat.deploy.node_settings import ADDRESS_VARIABLES, FIRST_ADDRESS_FLAGS, INTERFACE_VARIABLES
from qanat.deploy.plan.files import read_plan_file
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import first_node
from qanat.deploy.rendered.env_values import (
    ENV_FILE,
    MODEL_PATH,
    address_variable,
    interface_variable,
    read_values,
)
from qanat.deploy.text_files import read_text

PLAN_NAME = "plan.yaml"
SOURCE_SCRIPT = "install/source.sh"
"""`qanat deploy render --install source` writes it."""


def read_plan(word: str) -> Plan:
    """The plan in a file, or in a rendered folder; what its env.sh says of addresses, interfaces and paths wins.

    Raises:
        ConfigError: there is none, or it is none.
    """
    path = Path(word)
    if not path.is_dir():
        return read_plan_file(path)
    plan = read_plan_file(path / PLAN_NAME)
    edited = path / ENV_FILE
    return with_edits(plan, read_values(read_text(edited))) if edited.exists() else plan


def is_from_source(word: str) -> bool:
    """Whether a rendered folder installs the engine on the host instead of using an image."""
    return (Path(word) / SOURCE_SCRIPT).exists()


def with_edits(plan: Plan, values: Mapping[str, str]) -> Plan:
    """A plan with the addresses, interfaces and paths that a person wrote into env.sh."""
    placed = [
        msgspec.structs.replace(
            node,
            address=values.get(address_variable(node)) or node.address,
            interface=values.get(interface_variable(node)) or node.interface,
        )
        for node in plan.nodes
    ]
    plan = msgspec.structs.replace(
        plan, nodes=tuple(placed), model_source=values.get(MODEL_PATH) or plan.model_source
    )
    return msgspec.structs.replace(plan, nodes=tuple(_settings(plan, node) for node in plan.nodes))


def _settings(plan: Plan, node: Node) -> Node:
    """A node whose variables and flags name its address and interface."""
    env = dict(node.env)
    for names, text in ((INTERFACE_VARIABLES, node.interface), (ADDRESS_VARIABLES, node.address)):
        env.update({name: text for name in names if name in env and text})
    flags: dict[str, Any] = dict(node.flags)
    first = first_node(plan, node).address
    flags.update({name: first for name in FIRST_ADDRESS_FLAGS if name in flags and first})
    return msgspec.structs.replace(node, env=env, flags=flags)
