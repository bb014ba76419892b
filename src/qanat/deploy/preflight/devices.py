"""What a container gets from the host: devices, mounts, an engine that starts it."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.preflight.cards import npu_table
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import chip_named, failure, good, paths, unknown, warning
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

ENGINES = ("docker", "nerdctl", "podman")


def check_devices(host: Host, target: Target) -> Iterator[Result]:
    """Device files of the NPUs that are used, and of the driver."""
    chip = _chip(host, target)
    names = set(host.names("/dev") or ())
    if not any(name.startswith("davinci") for name in names) and not npu_table(host).chips:
        return
    numbers = target.npus or tuple(each.physical for each in npu_table(host).chips)
    wanted = [f"/dev/davinci{number}" for number in numbers]
    wanted += chip.devices if chip is not None else ("/dev/davinci_manager",)
    missing = [path for path in wanted if path.removeprefix("/dev/") not in names]
    if missing:
        yield failure("device-nodes", f"missing: {', '.join(missing)}")
    else:
        yield good("device-nodes", f"{len(wanted)} devices, {', '.join(wanted[-3:])} among them")


def check_mounts(host: Host, target: Target) -> Iterator[Result]:
    """Files that the container mounts."""
    chip = _chip(host, target)
    if not npu_table(host).chips:
        return
    mounts = paths("mount", chip.family if chip else None)
    missing = [path for path in mounts if not host.exists(path)]
    if missing:
        yield failure("mounts", f"missing on the host: {', '.join(missing)}")
    extra = [path for path in (chip.mounts if chip else ()) if not host.exists(path)]
    if extra:
        has_transfer = target.flag("kv-transfer-config") is not None
        seen = f"missing on the host: {', '.join(extra)}"
        if has_transfer:
            yield failure("mounts", f"{seen}; the transfer of caches reads it")
        else:
            yield warning("mounts", seen, "Links between NPUs of several nodes are configured there.")
    if not missing and not extra:
        yield good("mounts", f"{len(mounts) + len(chip.mounts if chip else ())} files and folders are there")


def check_engine(host: Host, target: Target) -> Iterator[Result]:
    """A container engine that answers, and the runtime for NPUs; without a plan nothing says that one is needed."""
    if target.is_in_container or target.is_from_source:
        return
    problems = []
    for engine in ENGINES:
        output = host.run(engine, "info", "--format", "{{json .Runtimes}}")
        if output.problem == "not found":
            continue
        if not output.is_good:
            last = output.text.strip().splitlines()[-1:] or [
                output.problem or f"exit code {output.exit_code}"
            ]
            problems.append(f"{engine} is installed but does not answer: {last[0]}")
            continue
        yield good("container-engine", f"{engine} answers")
        if '"ascend"' in output.text:
            yield good("container-runtime", "the runtime ascend is registered")
        elif npu_table(host).chips:
            yield good("container-runtime", "no runtime ascend; devices are passed with --device")
        return
    if problems:
        report = failure if target.plan else warning
        yield report("container-engine", "; ".join(problems))
    elif host.exists("/run/containerd/containerd.sock"):
        seen = "containerd runs, but none of its commands for users is here (nerdctl)"
        yield warning("container-engine", seen, "Kubernetes can use it; the scripts for docker cannot.")
    elif target.plan is None:
        yield unknown("container-engine", f"none of {', '.join(ENGINES)} is installed")
    else:
        yield failure("container-engine", f"none of {', '.join(ENGINES)} is installed")


def _chip(host: Host, target: Target) -> Chip | None:
    names = [chip.name for chip in npu_table(host).chips]
    return (chip_named(names[0]) if names else None) or target.chip
