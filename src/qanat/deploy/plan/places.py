"""Where a plan's parts are: nodes of an instance, those that answer, and the ports they answer on."""

from __future__ import annotations

from qanat.core.errors import ConfigError
from qanat.deploy.plan.model import Node, Plan, Proxy, Role

DEFAULT_SERVER_PORT = 8000
"""What `vllm serve` listens on where no flag says."""


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


def proxy_node(plan: Plan, proxy: Proxy) -> Node:
    """The node that the proxy runs on.

    Raises:
        ConfigError: the plan has no such node.
    """
    for node in plan.nodes:
        if node.name == proxy.node:
            return node
    raise ConfigError(f"the plan puts the proxy on {proxy.node}, which is none of its nodes.", param="proxy")


def entry_node(plan: Plan) -> Node:
    """The node that clients talk to: the first, or the proxy's."""
    return plan.nodes[0] if plan.proxy is None else proxy_node(plan, plan.proxy)


def service_port(plan: Plan) -> int:
    """The port that clients talk to."""
    return plan.port if plan.proxy is None else plan.proxy.port


def decoding_role(plan: Plan) -> Role:
    """The role whose engines write answers."""
    return next(role for role in plan.roles if role.name != "prefill")


def first_engine(plan: Plan) -> Node:
    """The first node whose engine writes answers."""
    role = decoding_role(plan).name
    return next(node for node in plan.nodes if node.role == role and node.rank == 0)
