"""A machine in a temporary folder on which rendered scripts run for real, with programs of its own on PATH."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import has_model_path
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.runnable import host_paths
from qanat.deploy.render.write import write_folder

HERE = Path(__file__).parent
GOVERNORS = "/sys/devices/system/cpu/"
SYSCTL = """\
case "$1" in
  -n) if [[ -f "$settings/$2" ]]; then cat "$settings/$2"; else exit 255; fi ;;
  -w) if [[ -e "$settings/refuses" ]]; then exit 255; fi
      printf '%s\\n' "${2#*=}" >"$settings/${2%%=*}" ;;
esac
"""


class Machine:
    """One host: a rendered folder, devices and programs.

    Args:
        root: an empty folder.
        plan: what is rendered.
        options: how.
    """

    def __init__(self, root: Path, plan: Plan, options: RenderOptions | None = None) -> None:
        self.root = root
        self.plan = plan
        self.folder = root / "deployment"
        self.programs = root / "bin"
        self.settings = root / "sysctl"
        self.cpus = root / "cpu"
        self.weights = root / "weights"
        for folder in (self.programs, self.settings, self.cpus, root / "home"):
            folder.mkdir()
        self.variables = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(root / "home"),
            "LANG": "C.UTF-8",
        }
        write_folder(self.folder, render(plan, options or RenderOptions()))
        self._move_paths()
        if has_model_path(plan):
            self.weights.mkdir()
            self.edit(MODEL_PATH=str(self.weights))
        fake = shlex.join([sys.executable, str(HERE / "fake_docker.py"), str(root / "docker.json")])
        self.program("docker", f'exec {fake} "$@"')
        self.program("sleep", "exit 0")
        # Scripts ask with it whether a port is taken, which nobody here can know.
        self.program("timeout", "exit 1")
        self.program("sysctl", f"settings={shlex.quote(str(self.settings))}\n{SYSCTL}")

    def _move_paths(self) -> None:
        """Devices and drivers of this machine are below its root: the paths in scripts are changed to that."""
        paths = {path for node in self.plan.nodes for group in host_paths(self.plan, node) for path in group}
        for path in paths:
            place = self.root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        for script in self.folder.rglob("container.sh"):
            lines = script.read_text().splitlines(keepends=True)
            moved = [f"  {self.root}{line.strip()}\n" if line.strip() in paths else line for line in lines]
            script.write_text("".join(moved))
        for script in self.folder.rglob("host.sh"):
            script.write_text(script.read_text().replace(GOVERNORS, f"{self.cpus}/"))

    def program(self, name: str, text: str) -> Path:
        """Puts a program on PATH."""
        path = self.programs / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path

    def edit(self, **values: str) -> None:
        """Sets variables in env.sh, as a person would."""
        path = self.folder / "env.sh"
        lines = path.read_text().splitlines()
        for name, value in values.items():
            lines = [
                f"{name}={shlex.quote(value)}" if line.startswith(f"{name}=") else line for line in lines
            ]
        path.write_text("\n".join(lines) + "\n")

    def run(
        self, script: str, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script of the folder."""
        return subprocess.run(
            [str(self.folder / script), *arguments],
            env={**self.variables, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    @property
    def docker(self) -> dict[str, Any]:
        """What docker did and holds."""
        path = self.root / "docker.json"
        state: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"containers": {}, "calls": []}
        )
        return state

    def set_docker(self, **values: Any) -> None:
        """Changes how docker answers."""
        (self.root / "docker.json").write_text(json.dumps({**self.docker, **values}))

    def calls(self, *beginning: str) -> list[list[str]]:
        """Calls of docker that begin with these words."""
        return [call for call in self.docker["calls"] if call[: len(beginning)] == list(beginning)]
