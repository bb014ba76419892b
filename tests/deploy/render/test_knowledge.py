"""Every path, number and source that scripts are made of stands in one."""

from __future__ import annotations

import re

import msgspec

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.wish import Topology
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.example_plans import disaggregated, single_node
from tests.deploy.render.test_serve import ray_plan

KNOWLEDGE = load_knowledge()


def all_text() -> str:
    single = single_node()
    plans = [single, disaggregated(), ray_plan()]
    plans += [msgspec.structs.replace(single, chip=chip.name) for chip in KNOWLEDGE.chips]
    assert ray_plan().topology is Topology.RAY
    return "\n".join(
        file.text
        for plan in plans
        for install in ("image", "source")
        for path, file in render(plan, RenderOptions(install=install)).items()  # type: ignore[arg-type]
        if path.endswith(".sh")
    )


TEXT = all_text()


def test_every_path_stands_in_a_script() -> None:
    for name in KNOWLEDGE.tables["known_paths"].entries:
        assert name in TEXT, name


def test_every_kernel_setting_stands_in_a_script() -> None:
    for name in KNOWLEDGE.tables["host_settings"].entries:
        assert name in TEXT, name


def test_every_source_stands_in_a_script() -> None:
    for name, tree in KNOWLEDGE.tables["source_trees"].entries.items():
        assert f"install {name} " in TEXT and tree.url in TEXT
        assert all(f"{key}={value}" in TEXT for key, value in tree.environment.items())


def test_every_package_stands_in_a_script() -> None:
    for name, package in KNOWLEDGE.tables["source_packages"].entries.items():
        verb = "take_away" if package.use == "unwanted" else "add"
        assert re.search(rf"^{verb} '?{re.escape(name)}\b", TEXT, re.MULTILINE), name


def test_every_variable_of_engines_stands_in_a_script() -> None:
    for name in KNOWLEDGE.tables["engine_variables"].entries:
        assert f"export {name}=" in TEXT, name


def test_every_number_stands_in_a_script() -> None:
    numbers = {
        name: f"{entry.value:g}" for name, entry in KNOWLEDGE.tables["container_thresholds"].entries.items()
    }
    used = {
        "ready-timeout": f"READY_TIMEOUT_S={numbers['ready-timeout']}\n",
        "stop-timeout": f"readonly stop_timeout_s={numbers['stop-timeout']}\n",
        "ray-port": f"RAY_PORT={numbers['ray-port']}\n",
        "shared-memory-per-rank": f"SHM_SIZE={16 * int(numbers['shared-memory-per-rank'])}g\n",
    }
    assert used.keys() == numbers.keys()
    assert [name for name, line in used.items() if line not in TEXT] == []
