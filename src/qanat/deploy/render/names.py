"""Names that scripts, manifests and tools agree on: of the deployment, its containers, variables, ports and paths."""

from __future__ import annotations

import re

from qanat.deploy.plan.model import Node, Plan

SERVER_READY_PATH = "/health"
PROXY_READY_PATH = "/healthcheck"
LABEL_DEPLOYMENT = "io.qanat.deployment"
LABEL_NODE = "io.qanat.node"
LABEL_SETTINGS = "io.qanat.settings"
"""A label that holds a digest of everything a container was started with."""
MOUNTED_AT = "/deployment"
"""Where containers see the folder, read only."""
LOGS_AT = "/var/log/qanat"
"""Where containers see `LOG_DIR` of env.sh."""
PROXY_NAME = "proxy"
DEFAULT_SERVER_PORT = 8000
"""What `vllm serve` listens on where no flag says."""


def deployment_name(plan: Plan) -> str:
    """The deployment's name: fit for a container, a label and a folder."""
    name = re.sub(r"[^a-z0-9_.-]+", "-", plan.served_model_name.lower()).strip("-._")
    return name or "qanat"


def container_name(plan: Plan, node_name: str) -> str:
    """The name of a node's container, or of the proxy's where `node_name` is `PROXY_NAME`."""
    return f"{deployment_name(plan)}-{node_name}"


def address_variable(node: Node) -> str:
    """The variable of env.sh that holds a node's IP address, such as ADDRESS_PREFILL_0."""
    return f"ADDRESS_{variable_part(node)}"


def interface_variable(node: Node) -> str:
    """The variable of env.sh that holds a node's network interface, such as INTERFACE_PREFILL_0."""
    return f"INTERFACE_{variable_part(node)}"


def variable_part(node: Node) -> str:
    """A node's name as a part of the name of a variable, such as PREFILL_0."""
    return re.sub(r"[^A-Z0-9]+", "_", node.name.upper())


def has_model_path(plan: Plan) -> bool:
    """Whether the weights lie on the nodes; else `vllm serve` is given a repository that it downloads."""
    return plan.model_source.startswith("/")


def group_of(plan: Plan, node: Node) -> list[Node]:
    """The nodes of the instance that `node` belongs to, itself among them, in order of the plan."""
    return [one for one in plan.nodes if (one.role, one.instance) == (node.role, node.instance)]


def first_node(plan: Plan, node: Node) -> Node:
    """The node of rank 0 of the instance that `node` belongs to: others connect to it.

    Raises:
        KeyError: there is none.
    """
    for one in group_of(plan, node):
        if one.rank == 0:
            return one
    raise KeyError(node.name)


def server_port(plan: Plan, node: Node) -> int | None:
    """The port on which a node answers requests; None for a node that answers none."""
    if node.rank > 0:
        return None
    flags = {**plan.role(node.role).flags, **node.flags}
    return int(flags.get("port", plan.port if plan.proxy is None else DEFAULT_SERVER_PORT))
