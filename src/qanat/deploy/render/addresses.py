"""Addresses in scripts: of one family in a deployment, in brackets where a URL holds an IPv6 address."""

from __future__ import annotations

from qanat.core.errors import ConfigError
from qanat.deploy.plan.model import Plan

ANY_IPV4, ANY_IPV6 = "0.0.0.0", "::"
ANY_ADDRESS = (ANY_IPV4, ANY_IPV6, f"[{ANY_IPV6}]")
LOCAL_IPV4, LOCAL_IPV6 = "127.0.0.1", "::1"


def is_ipv6(plan: Plan) -> bool:
    """Whether the nodes of a plan have IPv6 addresses; those that nobody said are taken for IPv4."""
    return any(":" in node.address for node in plan.nodes)


def family(plan: Plan) -> str:
    """The family of the addresses, as people call it."""
    return "IPv6" if is_ipv6(plan) else "IPv4"


def local_address(plan: Plan) -> str:
    """Where what listens on all addresses of a node answers on the node itself."""
    return LOCAL_IPV6 if is_ipv6(plan) else LOCAL_IPV4


def in_url(plan: Plan, host: str) -> str:
    """A host as a URL holds it, be it an address or a variable that will hold one of a node's."""
    return f"[{host}]" if is_ipv6(plan) else host


def check_families(plan: Plan) -> None:
    """Refuses a plan whose addresses cannot stand beside each other.

    Raises:
        ConfigError: some are IPv4 and some IPv6, or Ray is to use IPv6.
    """
    if not is_ipv6(plan):
        return
    others = [node.address for node in plan.nodes if node.address and ":" not in node.address]
    if others:
        raise ConfigError(
            f"{others[0]} is no IPv6 address, and other nodes have such; give all nodes addresses of one family.",
            param="--addresses",
        )
    executors = [role.flags.get("distributed-executor-backend") for role in plan.roles]
    if "ray" in executors:
        raise ConfigError(
            "Ray is started with IPv4 addresses only: give such, or another --topology.", param="--addresses"
        )
