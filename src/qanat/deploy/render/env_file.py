"""env.sh: addresses, interfaces and paths, the one file that a person edits; how it is written, read and kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import has_model_path
from qanat.deploy.render.addresses import LOCAL_IPV4
from qanat.deploy.render.engine import engine_settings, uses_ray, variables_used
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.shell import comment, quote
from qanat.deploy.rendered.env_values import (
    ASSIGNMENT,
    CACHE_DIR,
    DRAFT_PATH,
    INSTALL_DIR,
    LOG_DIR,
    MODEL_PATH,
    address_variable,
    interface_variable,
    read_values,
)

SPECULATIVE_FLAG = "speculative-config"
_HEAD = """\
# shellcheck shell=bash disable=SC2034
# What only you know of your machines: the one file to edit here. Every script reads it.
# Keep it the same on all nodes. `qanat deploy render` keeps what you change.
"""


@dataclass(frozen=True)
class EnvSetting:
    """A variable of env.sh.

    Attributes:
        name: of the variable.
        value: its text, or, where `is_code`, a word of bash.
        about: what it is, one line.
        is_code: whether other variables are replaced in the value.
    """

    name: str
    value: str
    about: str
    is_code: bool = False

    @property
    def text(self) -> str:
        """The lines of env.sh."""
        value = self.value if self.is_code else quote(self.value)
        return f"{comment(self.about)}\n{self.name}={value}\n"


def threshold(name: str) -> int:
    """A number of the knowledge base that scripts start with."""
    return int(load_knowledge().threshold("container_thresholds", name))


def draft_path(plan: Plan) -> str | None:
    """The folder of a draft model's weights; None without one, or where it is a repository."""
    for role in plan.roles:
        settings = role.flags.get(SPECULATIVE_FLAG)
        model = settings.get("model") if isinstance(settings, Mapping) else None
        if isinstance(model, str) and model.startswith("/"):
            return model
    return None


def env_settings(plan: Plan, options: RenderOptions) -> list[EnvSetting]:
    """The variables of a deployment's env.sh, in order."""
    used = {name for node in plan.nodes for name in variables_used(plan, node)}
    found = list(_node_settings(plan, used))
    if has_model_path(plan):
        found.append(EnvSetting(MODEL_PATH, plan.model_source, "Folder with the weights, on every node"))
    if options.install == "image":
        draft = draft_path(plan)
        if draft is not None:
            found.append(
                EnvSetting(DRAFT_PATH, draft, "Folder with the draft model's weights, on every node")
            )
        about = "Folder for what the engine downloads and compiles"
        found.append(EnvSetting(CACHE_DIR, '"${HOME:-/root}/.cache"', about, is_code=True))
        about = "Limit of a container's /dev/shm; only what is used takes memory"
        found.append(EnvSetting("SHM_SIZE", f"{shared_memory_gib(plan)}g", about))
    else:
        about = "Folder that install/source.sh makes: a virtual environment and the sources"
        found.append(EnvSetting(INSTALL_DIR, '"${HOME:-/root}/vllm-ascend"', about, is_code=True))
    about = "Folder for logs, a file a run"
    found.append(EnvSetting(LOG_DIR, '"$DEPLOYMENT_DIR/logs"', about, is_code=True))
    about = "Seconds that scripts wait for an engine to answer"
    found.append(EnvSetting("READY_TIMEOUT_S", str(threshold("ready-timeout")), about))
    if any(uses_ray(plan, node) for node in plan.nodes):
        found.append(
            EnvSetting("RAY_PORT", str(threshold("ray-port")), "Port of the head of the Ray cluster")
        )
    return found


def _node_settings(plan: Plan, used: set[str]) -> Iterator[EnvSetting]:
    is_alone = len(plan.nodes) == 1
    for node in plan.nodes:
        address = node.address or (LOCAL_IPV4 if is_alone else "")
        about = f"IP address of {node.name}, by which other nodes and clients reach it"
        yield EnvSetting(address_variable(node), address, about)
        if interface_variable(node) in used:
            about = f"Network interface of that address on {node.name}; `ip -brief address` lists them"
            yield EnvSetting(interface_variable(node), node.interface, about)


def shared_memory_gib(plan: Plan) -> int:
    """The limit of /dev/shm that containers get, in GiB: by the node with most ranks."""
    return max(_num_ranks(plan, node) for node in plan.nodes) * threshold("shared-memory-per-rank")


def _num_ranks(plan: Plan, node: Node) -> int:
    settings = engine_settings(plan, node)
    local = settings.get("data-parallel-size-local", settings.get("data-parallel-size", 1))
    return max(int(settings.get("tensor-parallel-size", 1)) * int(local), 1)


def env_text(plan: Plan, options: RenderOptions) -> str:
    """The text of env.sh."""
    return "\n".join([_HEAD, *(setting.text for setting in env_settings(plan, options))])


def keep_edits(edited: str, rendered: str) -> tuple[str, list[str]]:
    """What a person wrote into env.sh, with the variables that a new rendering has more.

    Args:
        edited: env.sh as it is.
        rendered: as it would be without edits.

    Returns:
        The new text, and a line for every variable that was added or that the plan would set otherwise.
    """
    there = {match.group(1) for match in ASSIGNMENT.finditer(edited)}
    values, wanted = read_values(edited), read_values(rendered)
    text, notes = edited, []
    for block in re.split(r"\n{2,}", rendered):
        match = ASSIGNMENT.search(block)
        if match is None:
            continue
        name = match.group(1)
        if name not in there:
            text = text.rstrip("\n") + f"\n\n{block.strip()}\n"
            notes.append(f"{name} was added")
        elif wanted.get(name) and name in values and values[name] != wanted[name]:
            notes.append(f"{name} stays {values[name] or 'empty'}; the plan says {wanted[name]}")
    return text, notes
