"""Builds the native kernels (`csrc/`) into the wheel where a C++17 compiler is found; without one the wheel is pure.

What is found decides, never whether the build succeeds: a compiler that is there and fails ends the installation with
its own message, since kernels left out in silence would be noticed as slowness only.
`QANAT_BUILD_NATIVE=0` leaves them out on purpose, `=1` makes their absence an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "QANAT_BUILD_NATIVE"
FOLDER = Path("qanat", "kernels", "native")
PROBE = "int main() { if constexpr (true) return 0; }"


class NativeKernels(BuildHookInterface):
    """The hook of both kinds of wheel; `editable` puts the module beside its sources."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs from the index; nothing where nothing is built."""
        if self.target_name != "wheel" or _what_is_missing():
            return []
        needed = ["nanobind>=2.4"]
        needed += ["cmake>=3.18"] if shutil.which("cmake") is None else []
        return needed + (["ninja>=1.11"] if shutil.which("ninja") is None else [])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and names the module to the wheel."""
        if self.target_name != "wheel":
            return
        missing = _what_is_missing()
        if missing and os.environ.get(SWITCH) == "1":
            raise RuntimeError(f"{SWITCH}=1 and {missing}")
        if missing:
            self.app.display_warning(f"qanat: {missing}; the torch reference kernels will run")
            return
        root = Path(self.root)
        if version == "editable":
            module = _compile(root / "csrc", root / "build" / f"native-{sys.implementation.cache_tag}")
            place = root / "src" / FOLDER / module.name
            # Under another name first: a process that runs has the old file mapped, and must keep it.
            shutil.copyfile(module, place.with_suffix(".new"))
            place.with_suffix(".new").replace(place)
        else:
            self._work = tempfile.TemporaryDirectory()
            module = _compile(root / "csrc", Path(self._work.name))
            build_data["force_include"][str(module)] = str(FOLDER / module.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _what_is_missing() -> str:
    """Why nothing is built; empty if everything is there."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's header files are not installed (Debian and Ubuntu: apt-get install python3-dev)"
    named = os.environ.get("CXX", "")
    for compiler in [*([named] if named else []), "c++", "g++", "clang++"]:
        command = [*compiler.split(), "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
        try:
            if subprocess.run(command, input=PROBE, text=True, capture_output=True).returncode == 0:
                return ""
        except OSError:
            continue
    return "no C++17 compiler was found (Debian and Ubuntu: apt-get install g++)"


def _compile(source: Path, folder: Path) -> Path:
    """The compiled module."""
    installed = folder / "installed"
    shutil.rmtree(installed, ignore_errors=True)
    configure = ["cmake", "-S", str(source), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", "-G", "Ninja"]
    _run([*configure, f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_INSTALL_PREFIX={installed}"])
    _run(["cmake", "--build", str(folder), "--target", "install"])
    (module,) = (installed / FOLDER).glob("_module*")
    return module


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(
            f"building the native kernels failed ({SWITCH}=0 leaves them out):\n{done.stdout[-8000:]}"
        )
