"""Inside the image: what imports, and in which version."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from qanat.deploy.knowledge.versions import parse_version
from qanat.deploy.preflight.cards import first_line
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure, good, unknown
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

IMPORT_TIMEOUT_S = 180.0
"""vllm and torch_npu take their time when their files are cold."""
PACKAGES = ("torch", "torch_npu", "vllm", "vllm_ascend")
VERSIONS_PROGRAM = """
import json
from importlib import metadata
found = {}
for name in ("torch", "torch-npu", "vllm", "vllm-ascend", "triton-ascend"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
LIBRARY_PROGRAM = "import ctypes; ctypes.CDLL('libatb.so')"


def package_versions(host: Host) -> dict[str, str]:
    """Versions of the packages that the image's Python has, by name; empty if there is no Python."""
    output = host.run("python3", "-c", VERSIONS_PROGRAM, timeout_s=IMPORT_TIMEOUT_S)
    try:
        found = json.loads(output.text.strip().splitlines()[-1]) if output.is_good else {}
    except (ValueError, IndexError):
        return {}
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def check_versions(host: Host, target: Target) -> Iterator[Result]:
    """Versions of vllm and vllm-ascend against the release."""
    if not target.is_in_container:
        return
    found = package_versions(host)
    missing = [name for name in ("vllm", "vllm-ascend", "torch-npu") if name not in found]
    if missing:
        yield failure("package-versions", f"not installed here: {', '.join(missing)}")
    release = target.release
    if release is None:
        if found:
            told = ", ".join(f"{name} {version}" for name, version in found.items())
            yield unknown("package-versions", f"{told}; give --image or a plan to compare them with")
        return
    facts = msgspec.structs.asdict(release)
    wanted = {"vllm": release.vllm, "vllm-ascend": release.name, "torch-npu": facts["torch_npu"] or ""}
    clean = not missing
    for name, version in wanted.items():
        if name in found and version and _differ(found[name], version):
            clean = False
            yield failure("package-versions", f"{name} {found[name]}, release {release.name} has {version}")
    if clean:
        yield good("package-versions", f"vllm {found['vllm']}, vllm-ascend {found['vllm-ascend']}")


def check_imports(host: Host, target: Target) -> Iterator[Result]:
    """Whether each package and the library of attention kernels loads."""
    if not target.is_in_container:
        return
    programs = {name: f"import {name}" for name in PACKAGES} | {"libatb": LIBRARY_PROGRAM}
    for name, program in programs.items():
        output = host.run("python3", "-c", program, timeout_s=IMPORT_TIMEOUT_S)
        if output.is_good:
            yield good("package-imports", f"{name} loads")
        elif output.problem:
            yield failure("package-imports", f"{name}: python3 {output.problem}")
        else:
            lines = [line for line in output.text.strip().splitlines() if line.strip()]
            yield failure(
                "package-imports", f"{name}: {lines[-1].strip() if lines else first_line(output.text)}"
            )


def _differ(found: str, wanted: str) -> bool:
    """Whether two versions differ; builds from source have a suffix behind + or .dev that says nothing."""
    plain = found.split("+")[0].split(".dev")[0]
    one, other = parse_version(plain), parse_version(wanted)
    return plain != wanted if one is None or other is None else one != other
