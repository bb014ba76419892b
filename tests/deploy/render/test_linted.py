"""A rendered folder under the linter of the same package: all of its files together, as a user would check them."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.finding import Finding
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import Files, RenderOptions
from qanat.deploy.sources.documents import read_document
from tests.deploy.plan.example_plans import PLANS, two_nodes

READ = (".sh", ".yaml", ".md")
SKIPPED = ("plan.yaml",)
"""Data of Qanat's own."""


def grave(files: Files, *under: str) -> list[Finding]:
    """What the linter says above info of all files, or of those in some folders."""
    names = [name for name in files if name.endswith(READ) and name not in SKIPPED]
    chosen = [name for name in names if not under or name.startswith(under)]
    found = lint([read_document(name, files[name].text) for name in chosen], None)
    return [one for one in found if one.severity is not Severity.INFO]


def described(found: list[Finding]) -> list[str]:
    return [f"{one.rule_id} {one.place.path}:{one.place.line}: {one.message}" for one in found]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("install", ["image", "source"])
@pytest.mark.parametrize("name", PLANS)
def test_a_folder_is_clean(
    name: str, install: Literal["image", "source"], language: Literal["en", "zh"]
) -> None:
    files = render(PLANS[name](), RenderOptions(install=install, language=language))
    assert described(grave(files)) == []


@pytest.mark.parametrize("folder", ["kubernetes/", "compose/", "checks/", "nodes/"])
@pytest.mark.parametrize("name", PLANS)
def test_its_parts_are_clean_alone(name: str, folder: str) -> None:
    files = render(PLANS[name](), RenderOptions())
    assert described(grave(files, folder)) == []


def with_variable(plan: Plan, name: str, value: str) -> Plan:
    role = plan.roles[0]
    return msgspec.structs.replace(
        plan, roles=(msgspec.structs.replace(role, env={**role.env, name: value}),)
    )


def test_the_linter_reads_scripts_and_manifests() -> None:
    files = render(with_variable(two_nodes(), "TASK_QUEUE_ENABLE", "2"), RenderOptions())
    places = {one.place.path for one in grave(files)}
    assert {"nodes/server-0/serve.sh", "nodes/server-1/serve.sh", "kubernetes/scripts.yaml"} <= places


def test_ops_004_services_do_not_reach_the_settings_of_a_server_named_like_vllm() -> None:
    plan = msgspec.structs.replace(two_nodes(), served_model_name="vllm")
    files = render(plan, RenderOptions())
    assert described(grave(files, "kubernetes/")) == []
    for name, file in files.items():
        if name.startswith("kubernetes/"):
            assert "name: vllm\n" not in file.text
