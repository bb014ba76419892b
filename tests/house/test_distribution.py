"""The built distributions hold what they need at run time, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.checkout import ROOT, repository_files

pytestmark = pytest.mark.slow


def build_wheel(source: Path, folder: Path) -> set[str]:
    """Names in the wheel that pip builds of a folder where no compiler is; the build is isolated, as a user's is."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=240, env={**os.environ, "QANAT_BUILD_NATIVE": "0"})
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize(("source", "package"), [(".", "qanat"), ("demo", "qanat_demo")])
def test_wheel_holds_the_package_and_its_data(source: str, package: str, tmp_path: Path) -> None:
    names = build_wheel(ROOT / source, tmp_path)
    expected = {
        path.relative_to(ROOT / source / "src").as_posix() for path in repository_files(f"{source}/src")
    }
    assert {name for name in names if name.startswith(f"{package}/")} == expected
    assert f"{package}/py.typed" in expected
    others = {name for name in names if not name.startswith((f"{package}/", f"{package}-"))}
    assert others == set()


def test_wheel_needs_no_compiler_and_carries_its_licence(tmp_path: Path) -> None:
    names = build_wheel(ROOT, tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("entry_points.txt") for name in names)
