"""What is installed: Python, this package, what the engine needs, its kernels and the demo model."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from qanat import __version__
from qanat.cli.doctor_checks.check import Check, State
from qanat.cli.terminal import ENGINE_MODULES
from qanat.config.env import ISA_VARIABLE, wanted_instruction_set
from qanat.config.model_source import DEMO_PACKAGE

INSTALL_ENGINE = "pip install 'qanat[engine]'"
REFERENCE = "reference"
"""Value of QANAT_ISA that leaves the native kernels out."""
TORCH_TIMEOUT_S = 120

_LEAST = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+).*extra\s*==\s*.engine")
_LOOK_AT_TORCH = """
import json, time
start = time.perf_counter()
import torch
print(json.dumps({
    "version": torch.__version__,
    "accelerator": torch.version.cuda or getattr(torch.version, "hip", None),
    "capability": torch.backends.cpu.get_cpu_capability(),
    "num_threads": torch.get_num_threads(),
    "import_s": round(time.perf_counter() - start, 2),
}))
"""
"""Runs in a process of its own: a build that does not suit the machine may end it."""


def check_installation() -> Iterator[Check]:
    """Each part of the installation, in the order in which one leads to the next."""
    yield Check(
        "qanat",
        State.OK,
        f"{__version__}, in {Path(__file__).parents[2]}",
        facts={"version": __version__, "folder": str(Path(__file__).parents[2])},
    )
    version = platform.python_version()
    yield Check(
        "Python",
        State.OK,
        f"{version} ({platform.python_implementation()}), {sys.executable}",
        facts={"version": version, "executable": sys.executable},
    )
    yield (engine := check_engine())
    if engine.state is not State.FAULT:
        yield check_torch()
    yield check_kernels()
    yield check_demo()


def check_engine() -> Check:
    """Whether the packages that the engine imports are there, in versions that it can use."""
    missing = [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        return Check(
            "engine",
            State.FAULT,
            f"not installed, only the base is: {', '.join(missing)} cannot be imported",
            f"{INSTALL_ENGINE}; without it serve, plan and chat with a local model do not work",
            facts={"missing": missing},
        )
    old = list(_too_old())
    if old:
        named = ", ".join(f"{name} {have} (at least {least})" for name, have, least in old)
        return Check("engine", State.WARNING, f"older than it was made for: {named}", INSTALL_ENGINE)
    return Check("engine", State.OK, "all packages that it imports are installed", facts={"missing": []})


def _too_old() -> Iterator[tuple[str, str, str]]:
    """(package, its version, the least) of what the extra `engine` asks for and has older."""
    try:
        wanted = importlib.metadata.requires("qanat") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for match in filter(None, map(_LEAST.match, wanted)):
        name, least = match.groups()
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if _numbers(have) < _numbers(least):
            yield name, have, least


def _numbers(version: str) -> tuple[int, ...]:
    """Of a version, as far as they go: 2.14.1+cpu is (2, 14, 1)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def check_torch() -> Check:
    """Which build it is, and whether it can be imported on this machine."""
    try:
        result = subprocess.run(
            [sys.executable, "-c", _LOOK_AT_TORCH], capture_output=True, text=True, timeout=TORCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(
            "torch", State.FAULT, f"could not be tried out: {error}", "see whether the machine is overloaded"
        )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        return Check(
            "torch", State.FAULT, f"cannot be imported: {last}", "install a build of torch for this machine"
        )
    facts = json.loads(result.stdout.splitlines()[-1])
    build = f"built for {facts['accelerator']}, used on the CPU" if facts["accelerator"] else "CPU build"
    message = f"{facts['version']} ({build}, {facts['capability']}), imported in {facts['import_s']} s"
    return Check("torch", State.OK, message, facts=facts)


def check_kernels() -> Check:
    """Whether the native kernels are built, and which of them run."""
    from qanat.kernels.native.module import INSTALL_HINT, instruction_sets, is_built, why_not

    wanted, known = wanted_instruction_set(), instruction_sets()
    facts = {"is_built": is_built(), "instruction_sets": known, "wanted": wanted, "chosen": REFERENCE}
    if not is_built():
        if wanted not in ("", REFERENCE):
            message = f"{ISA_VARIABLE}={wanted} cannot be had: {why_not()}"
            return Check(
                "native kernels",
                State.FAULT,
                message,
                f"unset {ISA_VARIABLE}, or {INSTALL_HINT}",
                facts=facts,
            )
        message = (
            why_not().removesuffix(f": {INSTALL_HINT}")
            + "; the torch reference kernels run, several times slower"
        )
        return Check("native kernels", State.WARNING, message, INSTALL_HINT, facts=facts)
    sets = ", ".join(known)
    if wanted == REFERENCE:
        message = f"built for {sets}, and left out as {ISA_VARIABLE}={REFERENCE} asks for"
        return Check(
            "native kernels", State.WARNING, message, f"unset {ISA_VARIABLE} to be faster", facts=facts
        )
    if wanted and wanted not in known:
        message = f"{ISA_VARIABLE}={wanted} is none of {sets}"
        advice = f"set {ISA_VARIABLE} to one of them or to {REFERENCE}, or unset it"
        return Check("native kernels", State.FAULT, message, advice, facts=facts)
    facts["chosen"] = wanted or known[-1]
    message = f"{facts['chosen']} runs (of {sets})"
    if wanted and wanted != known[-1]:
        advice = f"unset {ISA_VARIABLE} for {known[-1]}"
        return Check(
            "native kernels", State.NOTE, f"{message}, as {ISA_VARIABLE} asks for", advice, facts=facts
        )
    return Check("native kernels", State.OK, message, facts=facts)


def check_demo() -> Check:
    """Whether there is a model to begin with."""
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    if spec is None or spec.origin is None:
        advice = "install the package qanat-demo, or name a model: qanat serve FOLDER"
        return Check("demo model", State.NOTE, "not installed", advice, facts={"folder": None})
    folder = Path(spec.origin).parent / "model"
    if not (folder / "config.json").is_file():
        advice = "install the package qanat-demo again"
        return Check(
            "demo model", State.WARNING, f"{folder} has no config.json", advice, facts={"folder": str(folder)}
        )
    return Check("demo model", State.OK, f"in {folder}; qanat serve starts it", facts={"folder": str(folder)})
