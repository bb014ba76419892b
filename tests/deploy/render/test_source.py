from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.source import python_range, release_of
from tests.deploy.plan.example_plans import disaggregated, single_node
from tests.deploy.render.machine import Machine
from tests.deploy.render.test_serve import ray_plan

SOURCE = RenderOptions(install="source")
SCRIPT = "install/source.sh"
PIP = """\
case "$*" in
  *"pip install --editable"*)
    printf '%s|%s|%s\\n' "$*" "${VLLM_TARGET_DEVICE:-}" "$(git -C "${@: -1}" describe --tags)" >>"$HOME/installed"
    printf '%s' "$version" >"$HOME/version-$(basename "${@: -1}")" ;;
  *"pip install"*)
    printf '%s\\n' "${@: -1}" >>"$HOME/added" ;;
  *"pip uninstall"*)
    printf '%s\\n' "$*" >>"$HOME/removed" ;;
  *importlib.metadata*)
    [[ -e "$HOME/version-$3" ]] && cat "$HOME/version-$3" ;;
esac
"""


def git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return machine_for(tmp_path, single_node())


def machine_for(root: Path, plan: Plan) -> Machine:
    """A machine whose sources are repositories of its own, and whose python only notes what it is asked to install."""
    machine = Machine(root, plan, SOURCE)
    machine.edit(INSTALL_DIR=str(root / "install"))
    script = machine.folder / SCRIPT
    text = script.read_text()
    for package in ("vllm", "vllm-ascend"):
        repository = root / "origin" / package
        repository.mkdir(parents=True)
        git(repository, "init", "--quiet", "--initial-branch", "main")
        git(repository, "commit", "--allow-empty", "--quiet", "--message", "a")
        git(repository, "tag", "v0.23.0")
        git(repository, "commit", "--allow-empty", "--quiet", "--message", "b")
        text = text.replace(f"https://github.com/vllm-project/{package}.git", f"file://{repository}")
    script.write_text(text)
    machine.program("python", f"version=${{VERSION:-0.23.0}}\n{PIP}")
    python = machine.programs / "python"
    machine.program(
        "python3",
        f'if [[ "$2" == venv ]]; then mkdir -p "$3/bin"; cp "{python}" "$3/bin/python"; '
        f"else printf '%s\\n' \"${{PYTHON:-3.11}}\"; fi",
    )
    return machine


def test_both_are_installed_at_the_tags_that_pair_and_once(machine: Machine) -> None:
    result = machine.run(SCRIPT)
    assert result.returncode == 0, result.stderr
    lines = (machine.root / "home/installed").read_text().splitlines()
    assert [line.split("|")[1:] for line in lines] == [["empty", "v0.23.0"], ["", "v0.23.0"]]
    assert [line.split("|")[0].rpartition("/")[2] for line in lines] == ["vllm", "vllm-ascend"]
    again = machine.run(SCRIPT)
    assert again.returncode == 0
    assert "vllm-ascend 0.23.0 is installed already" in again.stdout
    assert len((machine.root / "home/installed").read_text().splitlines()) == 2


@pytest.mark.parametrize("version", ["3.9", "3.13", "3.14"])
def test_a_python_that_does_not_fit_ends_it(machine: Machine, version: str) -> None:
    result = machine.run(SCRIPT, variables={"PYTHON": version})
    assert result.returncode == 1
    assert f"python3 is {version}; this release needs 3.10 or newer, and older than 3.13" in result.stderr
    assert not (machine.root / "install").exists()


def test_a_version_that_did_not_arrive_ends_it(machine: Machine) -> None:
    result = machine.run(SCRIPT, variables={"VERSION": "0.22.1"})
    assert result.returncode == 1
    assert "vllm says it is version 0.22.1, not 0.23.0" in result.stderr


def test_what_a_build_adds_to_the_version_counts_as_the_same(machine: Machine) -> None:
    assert machine.run(SCRIPT, variables={"VERSION": "0.23.0+empty"}).returncode == 0


def test_sources_at_another_commit_or_changed_are_not_built(machine: Machine) -> None:
    assert machine.run(SCRIPT).returncode == 0
    (machine.root / "home/version-vllm").unlink()
    folder = machine.root / "install/vllm"
    (folder / "file").write_text("a")
    git(folder, "add", "file")
    result = machine.run(SCRIPT)
    assert result.returncode == 1
    assert "files in" in result.stderr and "were changed" in result.stderr
    git(folder, "commit", "--quiet", "--message", "c")
    result = machine.run(SCRIPT)
    assert result.returncode == 1
    assert "is at no tag, not at v0.23.0" in result.stderr


def test_a_clone_that_broke_off_is_made_anew(machine: Machine) -> None:
    (machine.root / "install/vllm.new").mkdir(parents=True)
    assert machine.run(SCRIPT).returncode == 0


def test_every_release_has_its_pair_and_a_python() -> None:
    for release in load_knowledge().releases:
        plan = msgspec.structs.replace(single_node(), release=release.name)
        text = render(plan, SOURCE)[SCRIPT].text
        assert f"install vllm {release.vllm} " in text
        assert f"install vllm-ascend {release.name} " in text
        oldest, too_new = python_range(release)
        assert tuple(map(int, oldest.split("."))) < tuple(map(int, too_new.split(".")))


def test_a_release_that_is_not_known_is_refused() -> None:
    plan = msgspec.structs.replace(single_node(), release="0.1.0")
    with pytest.raises(ConfigError, match="releases that are: 0.11.0"):
        release_of(plan)


def test_this_python_can_be_compared(machine: Machine) -> None:
    machine.program("python3", f'if [[ "$2" == venv ]]; then exit 1; fi; exec {sys.executable} "$@"')
    result = machine.run(SCRIPT)
    is_fitting = (3, 10) <= sys.version_info[:2] < (3, 13)
    assert ("this release needs" in result.stderr) is not is_fitting


def noted(machine: Machine, name: str) -> list[str]:
    path = machine.root / "home" / name
    return path.read_text().splitlines() if path.exists() else []


def test_the_transfer_engine_of_the_release_comes_with_disaggregated_plans(tmp_path: Path) -> None:
    machine = machine_for(tmp_path, disaggregated())
    result = machine.run(SCRIPT)
    assert result.returncode == 0, result.stderr
    assert noted(machine, "added") == ["mooncake-transfer-engine-npu==0.3.11.post1"]


def test_ray_comes_with_plans_that_use_it(tmp_path: Path) -> None:
    machine = machine_for(tmp_path, ray_plan())
    assert machine.run(SCRIPT).returncode == 0
    assert [one.partition(">")[0] for one in noted(machine, "added")] == ["ray"]


def test_others_get_neither(machine: Machine) -> None:
    assert machine.run(SCRIPT).returncode == 0
    assert noted(machine, "added") == noted(machine, "removed") == []


def test_triton_goes_where_the_chip_cannot_use_it(tmp_path: Path) -> None:
    machine = machine_for(tmp_path, msgspec.structs.replace(single_node(), chip="310P"))
    assert machine.run(SCRIPT).returncode == 0
    assert [one.rpartition(" ")[2] for one in noted(machine, "removed")] == ["triton", "triton-ascend"]


def test_a_release_whose_transfer_engine_is_in_no_package_is_refused() -> None:
    plan = msgspec.structs.replace(disaggregated(), release="0.22.1rc1")
    remedy = r"Mooncake 0\.3\.9, .* --install image, or an --image of 0\.23\.0rc1 or newer"
    with pytest.raises(ConfigError, match=remedy):
        render(plan, SOURCE)
    assert "install/source.sh" not in render(plan, RenderOptions())


def test_a_relative_folder_to_install_into_is_refused(machine: Machine) -> None:
    machine.edit(INSTALL_DIR="install")
    result = machine.run(SCRIPT)
    assert result.returncode == 1
    assert "INSTALL_DIR is the relative path install" in result.stderr
