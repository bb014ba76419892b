"""What runs in the background on a node, an engine or the proxy, and what it gets of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import first_node, server_port
from qanat.deploy.render.addresses import family, in_url, local_address
from qanat.deploy.render.engine import engine_flags, is_disaggregated, stated_host, variables_used
from qanat.deploy.render.model import Variable, Word
from qanat.deploy.render.names import SERVER_READY_PATH
from qanat.deploy.render.serve import known_paths
from qanat.deploy.render.shell import quote
from qanat.deploy.rendered.env_values import LOG_DIR, READY_TIMEOUT, address_variable, interface_variable

CACHE_AT = "/root/.cache"
"""Where containers see `CACHE_DIR` of env.sh."""


@dataclass(frozen=True)
class Runnable:
    """Something that runs in the background on a node: an engine, or the proxy.

    Attributes:
        name: of the node, or "proxy".
        folder: of its scripts, inside the deployment's.
        depth: folders between its scripts and the deployment's.
        what: for comments.
        needed: variables of env.sh that must not be empty.
        ready_url: a word of bash; two single quotes where it answers no requests.
        family: of addresses.
        settings_files: what decides how it runs, besides its start script and env.sh; inside the deployment's folder.
        other_variables: of env.sh that change nothing in how it runs.
        order: a sentence on what is started before; empty if nothing has to be.
    """

    name: str
    folder: str
    depth: int
    what: str
    needed: tuple[str, ...]
    ready_url: str
    family: str
    settings_files: tuple[str, ...]
    other_variables: tuple[str, ...]
    order: str = ""


@dataclass(frozen=True)
class HostFiles:
    """What a container gets of the host.

    Attributes:
        required: paths, or variables of env.sh that hold one, which must be there.
        optional: paths that are mounted where they are there.
        own: variables of env.sh that hold folders, which are made.
    """

    required: tuple[Word, ...] = ()
    optional: tuple[str, ...] = ()
    own: tuple[str, ...] = (LOG_DIR,)


def engine_runnable(plan: Plan, node: Node) -> Runnable:
    """The engine of a node."""
    port = server_port(plan, node)
    url = f'"http://{_host(plan, node)}:{port}{SERVER_READY_PATH}"' if port is not None else quote("")
    return Runnable(
        name=node.name,
        folder=f"nodes/{node.name}",
        depth=2,
        what=f"the engine of node {node.name}",
        needed=tuple(variables_used(plan, node)),
        ready_url=url,
        family=family(plan),
        settings_files=(f"nodes/{node.name}/serve.sh",),
        other_variables=other_variables(plan, (*variables_used(plan, node), address_variable(node))),
        order=f"Start {first_node(plan, node).name} first. " if node.rank > 0 else "",
    )


def other_variables(plan: Plan, used: Sequence[str]) -> tuple[str, ...]:
    """Variables of env.sh that change nothing in how something runs that reads those in `used`."""
    places = [name for node in plan.nodes for name in (address_variable(node), interface_variable(node))]
    return (READY_TIMEOUT, *(name for name in places if name not in used))


def _host(plan: Plan, node: Node) -> str:
    """Where the engine of a node answers, seen from the node itself; a piece of a word in double quotes."""
    stated = stated_host(plan, node)
    if stated is not None:
        return f"[{stated}]" if ":" in stated else stated
    own = address_variable(node)
    hosts = [flag.words for flag in engine_flags(plan, node) if flag.name == "--host"]
    return in_url(plan, f"${{{own}:-}}" if (Variable(own),) in hosts else local_address(plan))


def chip_of(plan: Plan) -> Chip:
    """The chip of a plan.

    Raises:
        ConfigError: the knowledge base has no such chip.
    """
    for chip in load_knowledge().chips:
        if chip.name == plan.chip:
            return chip
    known = ", ".join(chip.name for chip in load_knowledge().chips)
    raise ConfigError(
        f"the plan is for the chip {plan.chip}, which is not known; there are: {known}.", param="chip"
    )


def host_paths(plan: Plan, node: Node) -> tuple[list[str], list[str]]:
    """Paths of the host that a node's container needs, and those that it is given where they are there."""
    chip = chip_of(plan)
    required = [f"/dev/davinci{number}" for number in node.npus] + list(chip.devices)
    required += known_paths("mount", plan, is_required=True)
    optional = known_paths("mount", plan, is_required=False)
    if is_disaggregated(plan, node):
        required += chip.mounts
    else:
        optional += chip.mounts
    return required, optional
