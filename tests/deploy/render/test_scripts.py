"""Every script of every example plan, as text: for shellcheck, bash and the flags of the version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import Presence, must_parse
from qanat.deploy.plan.files import decode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.wish import Topology
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import Files, Install, RenderOptions
from qanat.deploy.sources.documents import read_document
from tests.deploy.plan.example_plans import PLANS, disaggregated, single_node, two_nodes

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
CASES = [(name, install) for name in PLANS for install in ("image", "source")]
QUICK = [("disaggregated", "image"), ("two_nodes", "source")]
"""Cases that stand for all where each takes seconds."""


def rendered(name: str, install: Install) -> Files:
    return render(PLANS[name](), RenderOptions(install=install))


def scripts_of(files: Files) -> list[str]:
    return [path for path, file in files.items() if path.endswith(".sh")]


def check_scripts(files: Files, folder: Path) -> None:
    """shellcheck and bash find nothing at all in the scripts."""
    for path, file in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(file.text, encoding="utf-8")
    scripts = scripts_of(files)
    assert scripts
    result = subprocess.run([SHELLCHECK, *scripts], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    for script in scripts:
        parsed = subprocess.run(["bash", "-n", script], cwd=folder, capture_output=True, text=True)
        assert parsed.returncode == 0, (script, parsed.stderr)


def check_flags(plan: Plan, files: Files) -> None:
    """Every flag that an engine is given exists in the plan's release."""
    table = load_knowledge().serve_flags
    version = must_parse(plan.release)
    for node in plan.nodes:
        document = read_document("serve.sh", files[f"nodes/{node.name}/serve.sh"].text)
        launches = [one for one in document.launches if one.kind == "serve"]
        is_ray_worker = plan.topology is Topology.RAY and node.rank > 0
        assert len(launches) == (0 if is_ray_worker else 1)
        for flag in (flag for launch in launches for flag in launch.flags):
            name = flag.name if flag.name in table.entries else f"--{flag.name.removeprefix('--no-')}"
            assert name in table.entries, flag.name
            assert table.presence(name, version) not in (Presence.GONE, Presence.NOT_YET), flag.name


@pytest.mark.parametrize(
    ("name", "install"),
    [one if one in QUICK else pytest.param(*one, marks=pytest.mark.slow) for one in CASES],
)
def test_scripts_are_good_bash(name: str, install: Install, tmp_path: Path) -> None:
    check_scripts(rendered(name, install), tmp_path)


@pytest.mark.parametrize("name", PLANS)
def test_engines_are_given_flags_that_their_version_has(name: str) -> None:
    plan = PLANS[name]()
    check_flags(plan, render(plan, RenderOptions()))


@pytest.mark.parametrize(("name", "install"), CASES)
def test_scripts_stop_at_errors_and_are_runnable(name: str, install: Install) -> None:
    files = rendered(name, install)
    for path in scripts_of(files):
        lines = files[path].text.splitlines()
        if path == "env.sh":
            assert not files[path].is_executable
            continue
        assert lines[0] == "#!/usr/bin/env bash"
        assert "set -euo pipefail" in lines
        assert files[path].is_executable
        words = files[path].text.replace("\n", " ").split(" ")
        assert not {"pkill", "killall", "--privileged"} & set(words)


def test_rendering_is_pure() -> None:
    assert rendered("disaggregated", "image") == rendered("disaggregated", "image")


def test_the_plan_is_in_the_folder() -> None:
    assert decode_plan(rendered("two_nodes", "image")["plan.yaml"].text, "plan.yaml") == two_nodes()


@pytest.mark.parametrize(("name", "install"), CASES)
def test_programs_find_everything_in_deployment_json(name: str, install: Install) -> None:
    plan, files = PLANS[name](), rendered(name, install)
    content = json.loads(files["deployment.json"].text)
    assert content["format"] == 1
    assert [node["name"] for node in content["nodes"]] == [node.name for node in plan.nodes]
    services = [*content["nodes"], *([content["proxy"]] if content["proxy"] else [])]
    for one in services:
        assert set(one["scripts"].values()) <= files.keys()
        assert f"{one['address_variable']}=" in files["env.sh"].text
        assert (one["ready"] is None) is (one["port"] is None)
    assert content["environment"] in files and content["plan"] in files
    assert (content["install_script"] in files) is (install == "source")
    assert content["service"]["port"] == plan.port


def test_a_headless_node_answers_nothing() -> None:
    content = json.loads(rendered("two_nodes", "image")["deployment.json"].text)
    assert [node["ready"] and node["ready"]["path"] for node in content["nodes"]] == ["/health", None]


def test_addresses_that_are_known_make_urls() -> None:
    content = json.loads(rendered("disaggregated", "image")["deployment.json"].text)
    assert content["nodes"][0]["ready"]["url"] == "http://192.0.2.1:30060/health"
    assert content["proxy"]["ready"]["url"] == "http://192.0.2.1:8010/healthcheck"


@pytest.mark.parametrize(
    ("chip", "npus", "devices", "has_host_pids"),
    [
        ("A2", 8, {"/dev/devmm_svm", "/dev/hisi_hdc"}, False),
        ("950DT", 8, {"/dev/ummu", "/dev/uburma", "/dev/hisi_hdc"}, True),
        ("310P", 4, {"/dev/devmm_svm", "/dev/hisi_hdc"}, False),
    ],
)
def test_devices_follow_the_chip_and_the_npus(
    chip: str, npus: int, devices: set[str], has_host_pids: bool
) -> None:
    plan = single_node()
    node = msgspec.structs.replace(plan.nodes[0], npus=tuple(range(npus)))
    text = render(msgspec.structs.replace(plan, chip=chip, nodes=(node,)), RenderOptions())[
        "nodes/server-0/container.sh"
    ].text
    words = text.replace("\\\n", " ").split()
    given_devices = {after for word, after in zip(words, words[1:], strict=False) if word == "--device"}
    assert given_devices == {f"/dev/davinci{number}" for number in range(npus)} | devices | {
        "/dev/davinci_manager"
    }
    assert ("--pid host" in text) is has_host_pids


def test_a_draft_model_in_a_folder_is_mounted() -> None:
    plan = single_node()
    settings = {"method": "eagle3", "model": "/data/models/draft", "num_speculative_tokens": 3}
    role = msgspec.structs.replace(
        plan.roles[0], flags={**plan.roles[0].flags, "speculative-config": settings}
    )
    files = render(msgspec.structs.replace(plan, roles=(role,)), RenderOptions())
    assert "DRAFT_MODEL_PATH=/data/models/draft" in files["env.sh"].text
    assert '--volume "$DRAFT_MODEL_PATH":/data/models/draft:ro' in files["nodes/server-0/container.sh"].text


def test_a_router_that_is_not_there_is_told(tmp_path: Path) -> None:
    plan = disaggregated()
    assert plan.proxy is not None
    plan = msgspec.structs.replace(plan, proxy=msgspec.structs.replace(plan.proxy, program="qanat router"))
    files = render(plan, RenderOptions())
    assert "--connector push" in files["proxy/serve.sh"].text, "the layerwise connector pushes"
    check_scripts(files, tmp_path)
    qanat = tmp_path / "bin" / "qanat"
    qanat.parent.mkdir()
    qanat.write_text("#!/bin/bash\nexit 2\n")
    qanat.chmod(0o755)
    environment = {**os.environ, "PATH": f"{qanat.parent}:/usr/bin:/bin"}
    result = subprocess.run(
        ["bash", tmp_path / "proxy/serve.sh"], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "qanat router is not there" in result.stderr


def replaced(**changes: object) -> Plan:
    return msgspec.structs.replace(single_node(), **changes)


def renamed(name: str) -> Plan:
    return replaced(nodes=(msgspec.structs.replace(single_node().nodes[0], name=name),))


def with_env(name: str) -> Plan:
    return replaced(roles=(msgspec.structs.replace(single_node().roles[0], env={name: "1"}),))


def with_flag(name: str) -> Plan:
    return replaced(roles=(msgspec.structs.replace(single_node().roles[0], flags={name: "1"}),))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (replaced(nodes=()), "no nodes"),
        (renamed("../../etc"), "cannot be the name of a node"),
        (renamed("a b"), "cannot be the name of a node"),
        (renamed("proxy"), "cannot be the name of a node"),
        (with_env("A B"), "no name of a variable"),
        (with_env("A=$(reboot)"), "no name of a variable"),
        (with_flag("port; reboot"), "no name of a flag"),
        (replaced(image="an image"), "no image with a tag"),
        (replaced(image="quay.io/ascend/vllm-ascend"), "no image with a tag"),
        (replaced(model_source="../models/a"), "relative path"),
        (replaced(model_source="/data/a:b"), "holds a colon"),
        (replaced(model_source="a\0b"), "NUL"),
        (replaced(driver="a\ud800", model="b\ud800"), "no valid Unicode"),
        (replaced(chip="H100"), "there are: A2"),
        (replaced(roles=()), "which the plan does not describe"),
        (replaced(nodes=(msgspec.structs.replace(single_node().nodes[0], rank=1),)), "first node"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plans_that_cannot_be_rendered_are_refused(plan: Plan, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        render(plan, RenderOptions())


def test_a_text_of_the_plan_cannot_leave_its_comment_or_its_quotes(tmp_path: Path) -> None:
    text = "a\n touch stolen\r\n$(touch stolen) `touch stolen` '; touch stolen"
    plan = msgspec.structs.replace(single_node(), model=text, weights=text)
    served = " ".join(text.split())
    plan = msgspec.structs.replace(plan, served_model_name=served)
    files = render(plan, RenderOptions())
    for path, file in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(file.text, encoding="utf-8")
    for script in ("serve.sh", "stop.sh", "container.sh"):
        command = ["bash", f"nodes/server-0/{script}"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, env={"PATH": "/usr/bin:/bin"})
        assert result.returncode != 0
    assert not (tmp_path / "stolen").exists()
