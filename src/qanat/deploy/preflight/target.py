"""What a host is checked for: a node of a plan, or the little that flags say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.releases import Release
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import parse_image
from qanat.deploy.plan.model import Node, Plan, Role


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is expected of a host.

    Attributes:
        plan: what is going to be started; None if only flags say something.
        node: the node of the plan that the host is to be.
        image: with its tag; empty if unknown.
        release: of vllm-ascend; None if unknown.
        chip: that is expected; None if unknown.
        model_path: folder of the weights on the host; empty if the engine downloads them or nothing is said.
        port: that clients talk to; None if nothing listens here, or nothing is said.
        is_in_container: whether checks run inside the image.
        is_from_source: whether the engine runs on the host itself, without an image.
        flags: of `vllm serve` on this node.
    """

    plan: Plan | None = None
    node: Node | None = None
    image: str = ""
    release: Release | None = None
    chip: Chip | None = None
    model_path: str = ""
    port: int | None = None
    is_in_container: bool = False
    is_from_source: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def role(self) -> Role | None:
        """The role of the node."""
        return self.plan.role(self.node.role) if self.plan and self.node else None

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables that the plan sets on this node, empty ones left out."""
        role = self.role
        together = {**(role.env if role else {}), **(self.node.env if self.node else {})}
        return {name: text for name, text in together.items() if text}

    @property
    def npus(self) -> tuple[int, ...]:
        """Numbers of the NPUs that are used; empty if nothing says."""
        return self.node.npus if self.node else ()

    @property
    def has_peers(self) -> bool:
        """Whether the deployment has more than one node."""
        return self.plan is not None and len(self.plan.nodes) > 1

    @property
    def is_group_spread(self) -> bool:
        """Whether the engine of this node spans other nodes too."""
        role = self.role
        return role is not None and role.nodes_per_instance > 1

    def flag(self, name: str) -> Any:
        """Value of a flag of `vllm serve`, None if it is not given."""
        return self.flags.get(name)

    def integer(self, name: str, default: int) -> int:
        """Value of a flag that is a number."""
        value = self.flags.get(name)
        return int(value) if isinstance(value, int | str) and str(value).isdigit() else default

    def key(self, flag: str, *path: str) -> Any:
        """A key inside a JSON flag, None if it is not there."""
        value = self.flags.get(flag)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


def target_of(
    plan: Plan | None,
    node_name: str | None = None,
    *,
    own_addresses: tuple[str, ...] = (),
    image: str | None = None,
    model_path: str | None = None,
    port: int | None = None,
    is_in_container: bool = False,
    is_from_source: bool = False,
) -> Target:
    """Puts together what is expected of this host.

    Args:
        plan: what is going to be started.
        node_name: the node of the plan that this host is; found by its address where that is unique.
        own_addresses: of this host.
        image: wins over that of the plan.
        model_path: wins over that of the plan.
        port: wins over that of the plan.
        is_in_container: whether checks run inside the image.
        is_from_source: whether the engine runs on the host itself.

    Raises:
        ConfigError: a node that the plan does not have, or none that can be chosen; an image without a version.
    """
    if plan is None:
        if node_name is not None:
            raise ConfigError("--node names a node of a plan; name the plan too.", param="--node")
        return Target(
            image=image or "",
            release=_release(image),
            chip=_chip_of_image(image),
            model_path=model_path or "",
            port=port,
            is_in_container=is_in_container,
        )
    node = _node(plan, node_name, own_addresses)
    role = plan.role(node.role)
    flags = {name.replace("_", "-"): value for name, value in {**role.flags, **node.flags}.items()}
    chosen = image or plan.image
    is_folder = plan.model_source.startswith(("/", "./", "../", "~"))
    return Target(
        plan=plan,
        node=node,
        image=chosen,
        release=_release(image) if image else _release(plan.release) or _release(plan.image),
        chip=next((chip for chip in load_knowledge().chips if chip.name == plan.chip), None),
        model_path=model_path or (plan.model_source if is_folder else ""),
        port=port if port is not None else _port(plan, node, flags),
        is_in_container=is_in_container,
        is_from_source=is_from_source,
        flags=flags,
    )


def _node(plan: Plan, name: str | None, own_addresses: tuple[str, ...]) -> Node:
    names = ", ".join(node.name for node in plan.nodes)
    if name is not None:
        for node in plan.nodes:
            if node.name == name:
                return node
        raise ConfigError(f"the plan has no node {name}; it has: {names}.", param="--node")
    if len(plan.nodes) == 1:
        return plan.nodes[0]
    here = [node for node in plan.nodes if node.address and node.address in own_addresses]
    if len(here) == 1:
        return here[0]
    why = "several of its nodes have" if here else "none of its nodes has"
    raise ConfigError(
        f"{why} an address of this host; say which one it is with --node: {names}.", param="--node"
    )


def _port(plan: Plan, node: Node, flags: Mapping[str, Any]) -> int | None:
    """The port of the engine of this node; nodes that answer no requests have none."""
    if flags.get("headless") or (node.rank > 0 and "port" not in node.flags):
        return None
    value = flags.get("port")
    return int(value) if value is not None else plan.port


def _release(image: str | None) -> Release | None:
    """The release of an image, a tag or a version.

    Raises:
        ConfigError: there is no version in it.
    """
    if not image:
        return None
    tag = parse_image(image)
    if tag is None:
        raise ConfigError(
            f"--image {image}: no version of vllm-ascend can be read from it; give an image or a tag such as "
            "v0.23.0-a3.",
            param="--image",
        )
    return load_knowledge().release(tag.version)


def _chip_of_image(image: str | None) -> Chip | None:
    """The chip whose suffix an image has; None where nothing is said, as the plain tag fits the A2 only by habit."""
    tag = parse_image(image) if image else None
    if tag is None:
        return None
    for chip in load_knowledge().chips:
        if chip.image_suffix and chip.image_suffix in tag.suffixes:
            return chip
    return next((chip for chip in load_knowledge().chips if not chip.image_suffix), None)
