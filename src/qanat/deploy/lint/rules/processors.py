"""Settings of the host's processors and kernel, seen from containers and servers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.registry import Hit, on_document
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.launch import Command
from qanat.deploy.sources.values import Place

MIN_CPUS_PER_NPU = 5
BINDING_SINCE = must_parse("0.17.0rc1")
"""From here on CPU binding is on unless a key says otherwise."""
_WRITTEN = re.compile(r"/(?:sys/devices/system/cpu|proc/sys)/")
_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_X86_PLATFORM = re.compile(r"linux/(?:amd64|x86_64)|\bkubernetes\.io/arch[\"']?:\s*[\"']?amd64")
_X86_FOLDER = re.compile(r"x86_64-linux")
_ARM = re.compile(r"aarch64|arm64", re.IGNORECASE)
CPU_SETTINGS = ("cpuset-cpus", "cpuset")
PINNING = re.compile(
    r"\btaskset\s+(?:-c|--cpu-list)\s+(\S+)|\bnumactl\b[^\n]*?(?:-C|--physcpubind)[ =]?(\S+)"
)


@on_document("HOST003")
def writes(view: DocumentView) -> Iterator[Hit]:
    """Kernel settings written inside of a container that may not write them."""
    for command in view.document.commands:
        container = command.container
        if container is None or container.is_privileged:
            continue
        texts = [value.text for value in command.arguments]
        target = command.target.text if command.target else ""
        is_setting = command.program == "sysctl" and any(
            re.fullmatch(r"[\w./-]+=\S*", text) for text in texts
        )
        is_write = command.program == "cpupower" or (
            command.program in ("tee", "echo", "printf") and any(map(_WRITTEN.search, (*texts, target)))
        )
        if is_setting or is_write:
            message = f"{command.program} writes a setting of the host, and the container is not privileged"
            yield Hit("HOST003", command.place, message)


@on_document("HOST004")
def architecture(view: DocumentView) -> Iterator[Hit]:
    """Settings for ARM hosts beside signs of another one."""
    text = view.document.text
    platform = _X86_PLATFORM.search(text)
    has_x86 = platform is not None or (
        any(_X86_FOLDER.search(one.value.text) for one in view.document.assignments)
        and _ARM.search(text) is None
    )
    if not has_x86:
        return
    for server in view.servers():
        binding = server.is_key_on("enable_cpu_binding")
        if binding is not None and binding.is_on:
            yield Hit("HOST004", binding.place, "CPU binding is skipped on x86_64")
    for assignment in view.document.assignments:
        is_preload = assignment.name == "LD_PRELOAD" and assignment.origin != "shell"
        if is_preload and "aarch64" in assignment.value.text and platform is not None:
            yield Hit("HOST004", assignment.place, "a library for ARM cannot be loaded on x86_64")


def _is_bound(server: LaunchView) -> bool:
    """Whether the server binds its workers to CPUs."""
    key = server.is_key_on("enable_cpu_binding")
    return key.is_on if key is not None else server.version >= BINDING_SINCE


def _num_cpus(text: str) -> int | None:
    if not _LIST.fullmatch(text):
        return None
    num = 0
    for part in text.split(","):
        ends = [int(end) for end in part.split("-")]
        num += ends[-1] - ends[0] + 1
    return num


@on_document("HOST006")
def binding(view: DocumentView) -> Iterator[Hit]:
    """CPUs for the workers that bind themselves to them, and what moves interrupts onto these."""
    bound = [server for server in view.servers() if _is_bound(server)]
    for server in bound:
        for place, num in _limits(view, server):
            if 0 < num < MIN_CPUS_PER_NPU * server.num_local_ranks:
                message = (
                    f"{num} CPUs for {server.num_local_ranks} NPUs; binding needs {MIN_CPUS_PER_NPU} for each"
                )
                yield Hit("HOST006", place, message)
    is_stopped = re.search(r"\bstop\s+irqbalance|irqbalance\s+stop", view.document.text) is not None
    for command in view.document.commands if bound and not is_stopped else ():
        if _starts_irqbalance(command):
            yield Hit("HOST006", command.place, "irqbalance moves interrupts onto the CPUs of the workers")


def _limits(view: DocumentView, server: LaunchView) -> Iterator[tuple[Place, int]]:
    container = server.launch.container
    for name in CPU_SETTINGS if container is not None else ():
        value = container.settings.get(name) if container is not None else None
        num = _num_cpus(value.text) if value is not None else None
        if value is not None and num is not None:
            yield value.place, num
    for command in view.document.commands:
        if command.place == server.launch.place:
            words = " ".join(word.text for word in command.argv[: len(command.argv) - len(command.arguments)])
            match = PINNING.search(words)
            num = _num_cpus(match.group(1) or match.group(2)) if match else None
            if num is not None:
                yield command.argv[0].place, num


def _starts_irqbalance(command: Command) -> bool:
    words = [value.text for value in command.arguments]
    if command.program == "systemctl":
        return any(verb in words for verb in ("start", "enable", "restart")) and any(
            word.startswith("irqbalance") for word in words
        )
    return (command.program == "service" and words[:2] == ["irqbalance", "start"]) or (
        command.program == "irqbalance" and not words
    )
