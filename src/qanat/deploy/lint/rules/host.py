"""Commands on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.registry import Hit, on_document
from qanat.deploy.sources.launch import Command
from qanat.deploy.sources.values import Place, Source

BROAD_NAMES = re.compile(r"(?i)^\W*(?:python[\d.]*|vllm|ray|bash|sh|node)\W*$")
_SETTING = re.compile(r"[\w./-]+=\S*")
_TOOLKIT = re.compile(r"/usr/local/Ascend/(?:ascend-toolkit/|cann-)(\d[\w.]*)")
SCHED_KEY = "kernel.sched_migration_cost_ns"


@on_document("HOST001", "HOST002", "HOST005", "HOST013")
def commands(view: DocumentView) -> Iterator[Hit]:
    """What commands do to a host."""
    for command in view.document.commands:
        texts = [value.text for value in command.arguments]
        if command.program == "sysctl":
            yield from _sysctl(view, command, texts)
        elif command.program in ("pkill", "killall"):
            broad = next((text for text in texts if BROAD_NAMES.match(text)), None)
            if broad is not None:
                message = f"{command.program} ends every process called {broad}, of others as well"
                yield Hit("HOST005", command.place, message)
        elif command.program in ("bash", "sh") and texts and texts[0].rsplit("/", 1)[-1] == "proxy.sh":
            if "disaggregated_prefill" in view.document.text:
                message = "there is no proxy.sh in examples/disaggregated_prefill_v1"
                yield Hit("HOST013", command.place, message)


def _sysctl(view: DocumentView, command: Command, texts: list[str]) -> Iterator[Hit]:
    settings = [text for text in texts if _SETTING.fullmatch(text)]
    if not settings:
        return
    if not any(re.fullmatch(r"-\w*w\w*|--write", text) for text in texts):
        first = command.arguments[0].place
        source = Source(view.document.path, view.document.text)
        edit = Edit(source.place(first.start, first.start), "-w ")
        yield Hit("HOST001", command.place, "sysctl without -w", "sysctl -w", (edit,))
    if any(text.startswith(SCHED_KEY) for text in settings):
        yield Hit("HOST002", command.place, f"kernels from 5.13 on do not have {SCHED_KEY}")


@on_document("ENV014", "HOST014")
def toolkits(view: DocumentView) -> Iterator[Hit]:
    """Folders of a CANN that the image does not have, and preloaded libraries from elsewhere."""
    for command in view.document.commands:
        if command.program in ("source", "."):
            for value in command.arguments:
                yield from _toolkit(view, value.text, command.place.start, value.place)
    for assignment in view.document.assignments:
        if assignment.origin in ("shell", "prose") or assignment.name not in (
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
        ):
            continue
        text = assignment.value.text
        yield from _toolkit(view, text, assignment.place.start, assignment.place)
        for path in text.split(":") if assignment.name == "LD_PRELOAD" else ():
            is_system = path.startswith(("/usr/lib", "/lib", "/usr/local/lib", "/usr/local/Ascend"))
            if path.startswith("/") and not is_system and not _is_mounted(view, path):
                yield Hit("ENV014", assignment.place, f"images have no {path}")


def _is_mounted(view: DocumentView, path: str) -> bool:
    mounts = [mount.text for one in view.document.containers for mount in one.mounts]
    targets = [mount.split(":")[1] for mount in mounts if ":" in mount]
    return any(path.startswith(target.rstrip("/") + "/") for target in targets)


def _toolkit(view: DocumentView, text: str, offset: int, place: Place) -> Iterator[Hit]:
    match = _TOOLKIT.search(text)
    version = view.versions.at(offset)
    release = view.knowledge.release(version)
    if match is None or release is None or release.cann is None or view.versions.is_assumed:
        return
    if match.group(1).lower() != release.cann.lower():
        message = f"the folder is of CANN {match.group(1)}, the image {release.name} has {release.cann}"
        yield Hit("HOST014", place, message)
