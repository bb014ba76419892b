"""All files of a deployment's folder, from its plan."""

from __future__ import annotations

import re
import unicodedata

import msgspec

from qanat.core.errors import ConfigError
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import has_model_path
from qanat.deploy.render import checks, compose, kubernetes, readme
from qanat.deploy.render.addresses import check_families
from qanat.deploy.render.deployment_file import DEPLOYMENT_FILE, deployment_file
from qanat.deploy.render.env_file import draft_path, env_text
from qanat.deploy.render.host import host_script
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions
from qanat.deploy.render.proxy import proxy_files
from qanat.deploy.render.serve import serve_script
from qanat.deploy.render.source import source_files
from qanat.deploy.render.start import engine_files
from qanat.deploy.rendered.env_values import ENV_FILE

PLAN_FILE = "plan.yaml"
_NODE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]*", re.ASCII)


def render(plan: Plan, options: RenderOptions) -> Files:
    """The files of a deployment, by their path in its folder; equal for equal plans.

    Raises:
        ConfigError: the plan cannot be rendered: a name in it is none, or a text that no command line can hold.
    """
    _check(plan)
    files: Files = {
        PLAN_FILE: RenderedFile(encode_plan(plan)),
        ENV_FILE: RenderedFile(env_text(plan, options), is_edited_by_hand=True),
        DEPLOYMENT_FILE: deployment_file(plan, options),
    }
    for node in plan.nodes:
        folder = f"nodes/{node.name}"
        files[f"{folder}/host.sh"] = host_script(plan, node, options)
        files[f"{folder}/serve.sh"] = serve_script(plan, node, options)
        files |= engine_files(plan, node, options)
    files |= proxy_files(plan, options)
    if options.install == "source":
        files |= source_files(plan)
    for module in (checks, compose, kubernetes, readme):
        files |= module.files(plan, options)
    return files


def _check(plan: Plan) -> None:
    """Refuses what would break out of file names, names of variables or flags, or volumes of docker."""
    try:
        msgspec.json.encode(plan)
    except UnicodeEncodeError:
        raise ConfigError("a text of the plan is no valid Unicode; write it anew.") from None
    names = [node.name for node in plan.nodes]
    if not names:
        raise ConfigError("the plan has no nodes.", param="nodes")
    for name in names:
        if not _NODE_NAME.fullmatch(name) or names.count(name) > 1 or name == "proxy":
            raise ConfigError(
                f"{name!r} cannot be the name of a node: small letters, digits, dots and dashes, each name once.",
                param="nodes",
            )
    for node in plan.nodes:
        role = next((one for one in plan.roles if one.name == node.role), None)
        if role is None:
            raise ConfigError(f"node {node.name} has the role {node.role}, which the plan does not describe.")
        if not any((one.role, one.instance, one.rank) == (node.role, node.instance, 0) for one in plan.nodes):
            raise ConfigError(
                f"node {node.name} belongs to a group whose first node (rank 0) is not in the plan."
            )
        _check_names([*role.env, *node.env], _VARIABLE, "variable")
        _check_names([*role.flags, *node.flags], _FLAG, "flag")
        if {"api-key", "api_key"} & {*role.flags, *node.flags}:
            raise ConfigError(
                "a key in the plan would stand readable in scripts and manifests; take api-key out of it, and ask for "
                "keys in front of the service.",
                param="api-key",
            )
    check_families(plan)
    if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in plan.served_model_name):
        raise ConfigError(
            f"the served name {plan.served_model_name!r} holds a line end or another control character, which clients "
            "cannot be told; take it out.",
            param="--served-model-name",
        )
    if not _IMAGE.fullmatch(plan.image):
        raise ConfigError(
            f"{plan.image!r} is no image with a tag, such as quay.io/ascend/vllm-ascend:v0.23.0-a3."
        )
    if plan.model_source.startswith((".", "~")):
        raise ConfigError(
            f"{plan.model_source} is a relative path; write where it lies on every node from / on."
        )
    for path in (plan.model_source if has_model_path(plan) else "", draft_path(plan) or ""):
        if ":" in path:
            raise ConfigError(f"{path} holds a colon, which docker takes for the end of the path; rename it.")


def _check_names(names: list[str], pattern: re.Pattern[str], what: str) -> None:
    for name in names:
        if not pattern.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a {what}.")
