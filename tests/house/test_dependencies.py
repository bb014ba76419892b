"""What the package imports is what pyproject.toml declares, layer by layer, and every declared version is pinned."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from tests.house.checkout import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Import names that differ from the distribution's name.
DISTRIBUTION_OF = {"yaml": "pyyaml", "zmq": "pyzmq"}
BASE_PACKAGES = ("core", "config", "cli")
# Imported by one file each, which is itself imported on request only.
EXTRA_OF = {"src/qanat/structured/xgrammar_backend.py": "xgrammar"}
# Imported on use only, with a message that says what to install: no extra of Qanat installs them.
ON_USE = {"huggingface-hub", "modelscope"}
# Imported by `qanat chat` once it knows that the engine is installed.
NEEDS_ENGINE = "src/qanat/cli/local_server.py"
# Declared without an import of ours: uvicorn parses with it.
NOT_IMPORTED = {"httptools"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[ ]", requirement)[0].lower() for requirement in requirements}


def imported(file: Path, *, at_top_only: bool = False) -> set[str]:
    """Third-party distributions that a file imports."""
    tree = ast.parse(file.read_text())
    found = set()
    for node in tree.body if at_top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    found -= set(sys.stdlib_module_names) | {"qanat", "qanat_demo", "__future__"}
    return {DISTRIBUTION_OF.get(name, name.replace("_", "-")) for name in found}


def package_files(*packages: str) -> list[Path]:
    folders = (
        [ROOT / "src" / "qanat" / package for package in packages] if packages else [ROOT / "src" / "qanat"]
    )
    return [file for folder in folders for file in folder.rglob("*.py")]


def test_every_import_is_declared() -> None:
    declared = names(PROJECT["dependencies"]) | names(EXTRAS["engine"]) | ON_USE
    undeclared = {
        (str(file.relative_to(ROOT)), name)
        for file in package_files()
        for name in imported(file)
        - declared
        - names(EXTRAS.get(EXTRA_OF.get(str(file.relative_to(ROOT)), ""), []))
    }
    assert undeclared == set()


def test_base_layers_need_base_dependencies_only() -> None:
    base = names(PROJECT["dependencies"])
    files = [file for file in package_files(*BASE_PACKAGES) if file != ROOT / NEEDS_ENGINE]
    wrong = {(str(file), name) for file in files for name in imported(file, at_top_only=True) - base}
    assert wrong == set()


def test_every_declared_dependency_is_used() -> None:
    used = set().union(*(imported(file) for file in package_files())) | NOT_IMPORTED
    assert (names(PROJECT["dependencies"]) | names(EXTRAS["engine"])) - used == set()


def test_every_declared_dependency_is_pinned_to_a_version_that_is_allowed() -> None:
    pinned = {
        line.split("==")[0]: line.split("==")[1]
        for line in (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    for requirement in [*PROJECT["dependencies"], *EXTRAS["engine"], *EXTRAS["dev"]]:
        name, least = re.match(r"([\w.-]+)>=([\d.]+)", requirement).groups()
        assert numbers(pinned[name.lower()]) >= numbers(least), requirement


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def test_every_import_of_the_tests_is_declared() -> None:
    declared = names([*PROJECT["dependencies"], *EXTRAS["engine"], *EXTRAS["dev"]])
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").glob("*.py")]
    own = {"tests", "benchmarks", "conftest", "demokit"} | {
        file.stem.replace("_", "-") for file in (ROOT / "demo").glob("*.py")
    }
    undeclared = {
        (str(file.relative_to(ROOT)), name) for file in files for name in imported(file) - declared - own
    }
    assert undeclared == set()
