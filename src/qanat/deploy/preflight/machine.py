"""Memory, CPUs, kernel settings, limits and disks of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.kinds.hosts import HostSetting
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.preflight.cards import npu_table, used_chips
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure, good, settings, threshold, unknown, warning
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target
from qanat.deploy.sizing.memory import GIB
from qanat.deploy.sizing.weights import total_weight_bytes

GOVERNOR_FILE = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
HUGE_PAGES_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"
_LIMIT = re.compile(r"^(Max [a-z ]+?)\s{2,}(\S+)\s+(\S+)", re.MULTILINE)


def num_npus(host: Host, target: Target) -> int:
    """NPUs that the node uses; 0 if neither plan nor npu-smi says."""
    return len(target.npus) or len(used_chips(npu_table(host), target))


def memory_fields(host: Host) -> dict[str, int]:
    """/proc/meminfo in bytes by name; counts of pages as they are."""
    fields: dict[str, int] = {}
    for line in (host.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * (1024 if len(words) > 1 else 1)
    return fields


def check_memory(host: Host, target: Target) -> Iterator[Result]:
    """Memory that is available, and huge pages that are set aside."""
    fields = memory_fields(host)
    available = fields.get("MemAvailable")
    if available is None:
        yield unknown("memory", "/proc/meminfo cannot be read")
        return
    needed = int(threshold("host-memory-per-npu") * GIB) * num_npus(host, target)
    seen = f"{available / GIB:.0f} GiB of {fields.get('MemTotal', 0) / GIB:.0f} GiB are available"
    if available < needed:
        yield warning(
            "memory", f"{seen}, {needed / GIB:.0f} GiB are sensible for {num_npus(host, target)} ranks"
        )
    else:
        yield good("memory", seen)
    unused = fields.get("HugePages_Free", 0) * fields.get("Hugepagesize", 0)
    if unused > 0:
        yield warning("huge-pages", f"{unused / GIB:.1f} GiB are reserved as huge pages and not used")
    else:
        yield good("huge-pages", "no unused huge pages are reserved")


def check_transparent_huge_pages(host: Host, target: Target) -> Iterator[Result]:
    """The mode of transparent huge pages."""
    match = re.search(r"\[(\w+)\]", host.read(HUGE_PAGES_FILE) or "")
    if match is None:
        yield unknown("transparent-huge-pages", f"{HUGE_PAGES_FILE} cannot be read")
    elif match.group(1) == "always":
        yield warning("transparent-huge-pages", "the mode is always")
    else:
        yield good("transparent-huge-pages", f"the mode is {match.group(1)}")


def check_shared_memory(host: Host, target: Target) -> Iterator[Result]:
    """Room in /dev/shm."""
    free = host.free_bytes("/dev/shm") if host.exists("/dev/shm") else None
    if free is None:
        yield unknown("shared-memory", "there is no /dev/shm")
    elif free < threshold("shared-memory") * GIB:
        seen = (
            f"{free / GIB:.2f} GiB are free in /dev/shm, {threshold('shared-memory'):.0f} GiB are asked for"
        )
        yield failure("shared-memory", seen) if target.is_in_container else warning("shared-memory", seen)
    else:
        yield good("shared-memory", f"{free / GIB:.1f} GiB are free in /dev/shm")


def allowed_cpus(host: Host) -> tuple[int, ...]:
    """Numbers of the CPUs that this process may use."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", host.read("/proc/self/status") or "", re.MULTILINE)
    numbers: list[int] = []
    for part in match.group(1).split(",") if match else ():
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def check_cpus(host: Host, target: Target) -> Iterator[Result]:
    """CPUs for every NPU, and what keeps them fast."""
    cpus, npus = allowed_cpus(host), num_npus(host, target)
    if not cpus:
        yield unknown("cpu-count", "/proc/self/status does not say which CPUs may be used")
        return
    needed = threshold("cpus-per-npu")
    if npus == 0:
        yield good("cpu-count", f"{len(cpus)} CPUs")
    elif len(cpus) < needed * npus:
        yield warning(
            "cpu-count", f"{len(cpus)} CPUs for {npus} NPUs, {needed:.0f} each are needed for binding"
        )
    else:
        yield good("cpu-count", f"{len(cpus)} CPUs for {npus} NPUs")
    governors: dict[str, int] = {}
    for cpu in cpus:
        governor = (host.read(GOVERNOR_FILE.format(cpu)) or "").strip()
        if governor:
            governors[governor] = governors.get(governor, 0) + 1
    slow = {name: number for name, number in governors.items() if name != "performance"}
    if not governors:
        yield unknown("cpu-governor", "this machine shows no governor, as virtual machines do not")
    elif slow:
        told = ", ".join(f"{name} on {number} CPUs" for name, number in sorted(slow.items()))
        yield warning("cpu-governor", told)
    else:
        yield good("cpu-governor", "performance on all CPUs")


def check_irqbalance(host: Host, target: Target) -> Iterator[Result]:
    """Whether irqbalance runs; it matters where ranks are bound to CPUs."""
    output = host.run("systemctl", "is-active", "irqbalance")
    state = output.text.strip().splitlines()[0:1]
    if output.problem or not state:
        yield unknown("irqbalance", "systemctl cannot be asked")
    elif state[0] == "active":
        yield warning("irqbalance", "irqbalance runs")
    elif state[0] in ("inactive", "failed", "unknown"):
        yield good("irqbalance", f"irqbalance is {state[0]}")
    else:
        yield unknown("irqbalance", f"systemctl says: {state[0]}")


def check_kernel(host: Host, target: Target) -> Iterator[Result]:
    """Kernel settings that guides ask for."""
    for name, setting in settings().items():
        texts = [(path, host.read(path)) for path in setting.paths]
        found = [(path, text.strip()) for path, text in texts if text is not None]
        if not found:
            why = "for root only, or not in this kernel" if len(setting.paths) > 1 else "cannot be read"
            yield unknown("kernel-settings", f"{name}: {' and '.join(setting.paths)}: {why}")
            continue
        path, text = found[0]
        if not text.isdigit():
            yield unknown("kernel-settings", f"{name}: {path} says {text}")
        elif _is_right(setting, int(text)):
            yield good("kernel-settings", f"{name} is {text}")
        else:
            word = {"equal": "", "at_most": "at most ", "at_least": "at least "}[setting.is_right_if]
            seen = f"{name} is {text}, should be {word}{setting.value}"
            yield warning("kernel-settings", seen, setting.why, setting.fix)


def check_limits(host: Host, target: Target) -> Iterator[Result]:
    """Limits that processes of this user have."""
    limits = {
        match.group(1): match.group(2) for match in _LIMIT.finditer(host.read("/proc/self/limits") or "")
    }
    files, locked = limits.get("Max open files"), limits.get("Max locked memory")
    if files is None or locked is None:
        yield unknown("limits", "/proc/self/limits cannot be read")
        return
    wanted = int(threshold("open-files"))
    if files.isdigit() and int(files) < wanted:
        yield warning("limits", f"{files} open files are allowed (ulimit -n), {wanted} are sensible")
    else:
        yield good("limits", f"open files: {files}")
    if locked != "unlimited" and locked.isdigit() and int(locked) < GIB:
        yield warning(
            "limits", f"{int(locked) // 2**20} MiB may be locked (ulimit -l), unlimited is sensible"
        )
    else:
        yield good("limits", f"locked memory: {locked}")


def check_disks(host: Host, target: Target) -> Iterator[Result]:
    """Room for weights that are not here yet, and for logs."""
    logs = host.free_bytes("/var/log")
    wanted = threshold("disk-for-logs") * GIB
    if logs is None:
        yield unknown("disk-space", "the disk of /var/log is not known")
    elif logs < wanted:
        yield warning(
            "disk-space", f"{logs / GIB:.0f} GiB are free for logs, {wanted / GIB:.0f} GiB are sensible"
        )
    else:
        yield good("disk-space", f"{logs / GIB:.0f} GiB are free for logs")
    yield from _download(host, target)


def _download(host: Host, target: Target) -> Iterator[Result]:
    """Room for the weights where the engine downloads them."""
    plan = target.plan
    if plan is None or target.model_path or target.is_in_container:
        return
    model = next((each for each in load_knowledge().models if each.name == plan.model), None)
    place = f"{host.variables().get('HOME', '/root')}/.cache"
    free = host.free_bytes(place)
    if model is None or free is None:
        return
    size_bytes = total_weight_bytes(model, plan.weights.removesuffix("-mtp"), with_vision=model.has_vision)
    seen = (
        f"{plan.model_source} has about {size_bytes / GIB:.0f} GiB, {free / GIB:.0f} GiB are free at {place}"
    )
    if free < size_bytes:
        yield warning("disk-space", f"{seen}; enough only if it was downloaded before")
    else:
        yield good("disk-space", seen)


def _is_right(setting: HostSetting, value: int) -> bool:
    if setting.is_right_if == "equal":
        return value == setting.value
    return value <= setting.value if setting.is_right_if == "at_most" else value >= setting.value
