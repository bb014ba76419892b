"""Environment variables one by one: whether this version reads them, and whether their values fit."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.settings import EnvVar
from qanat.deploy.knowledge.versions import Presence, Version, parse_version
from qanat.deploy.lint.edits import remove_assignment
from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.names import nearest
from qanat.deploy.lint.registry import Hit, on_document
from qanat.deploy.sources.launch import Assignment

COMPLETE_PREFIXES = ("VLLM_",)
"""Variables that begin so are all known; for others only a likely misspelling is reported."""
OTHER_PROGRAMS = ("NCCL_", "CUDA_", "PYTORCH_CUDA_", "PYTORCH_ALLOC")
MIN_CHARS = 10
"""Of a variable whose name may be a misspelt one; shorter ones are like too many."""
MIN_LIKENESS = 0.87
ALIAS = "VLLM_ASCEND_ENABLE_FLASHCOMM"
_BRANCH = re.compile(r"(?:^|[\s;])(?:else|elif|fi|done|esac|;;)(?:[\s;]|$)")
_WORKSPACE = "/vllm-workspace"


def _seen(view: DocumentView) -> Iterator[tuple[Assignment, Version]]:
    """Assignments that a program may see, with the version in force."""
    for assignment in view.document.assignments:
        if assignment.origin != "shell":
            yield assignment, view.versions.at(assignment.place.start)


@on_document("ENV003", "ENV004", "ENV023", "ENV024", "ENV032")
def known(view: DocumentView) -> Iterator[Hit]:
    """Whether anything reads a variable, and takes its value."""
    for assignment, version in _seen(view):
        entries = _entries(view.knowledge, assignment.name, version)
        if not entries:
            yield from _unknown(view, assignment, version)
            continue
        present = [entry for entry, presence in entries if presence in (Presence.PRESENT, Presence.UNSURE)]
        if present:
            yield from _value(assignment, present[0])
            if assignment.name == ALIAS:
                message = f"{ALIAS} is an alias that was never documented; it ends with 0.19.1rc1"
                yield Hit("ENV032", assignment.place, message)
            continue
        entry, presence = entries[0]
        if presence is Presence.GONE:
            has_heir = entry.replacement is not None and not entry.replacement.startswith("nothing")
            message = f"nothing reads {entry.name} any more; the last was {entry.owner} {entry.until}"
            fix = f"remove it; instead: {entry.replacement}" if has_heir else "remove it"
            yield Hit("ENV003", assignment.place, message, fix, remove_assignment(assignment))
        else:
            yield Hit("ENV004", assignment.place, f"{entry.name} is read from {entry.owner} {entry.since} on")


def _entries(knowledge: Knowledge, name: str, version: Version) -> list[tuple[EnvVar, Presence]]:
    return [
        (table.entries[name], table.presence(name, version))
        for table in knowledge.variables()
        if name in table.entries
    ]


def _unknown(view: DocumentView, assignment: Assignment, version: Version) -> Iterator[Hit]:
    name = assignment.name
    if name.startswith(OTHER_PROGRAMS) or name in view.used_names:
        return
    if len(name) < MIN_CHARS and not name.startswith(COMPLETE_PREFIXES):
        return
    near = nearest(name, _present(view.knowledge, version))
    likeness = SequenceMatcher(None, name, near).ratio() if near else 0.0
    if not name.startswith(COMPLETE_PREFIXES) and likeness < MIN_LIKENESS:
        return
    advice = f"did you mean {near}?" if near else "no variable is like it"
    yield Hit("ENV023", assignment.place, f"nothing reads {name}; {advice}", advice)


@functools.lru_cache(maxsize=32)
def _present(knowledge: Knowledge, version: Version) -> tuple[str, ...]:
    """The variables that something reads in a version."""
    absent = (Presence.GONE, Presence.NOT_YET)
    return tuple(
        name
        for table in knowledge.variables()
        for name in table.entries
        if table.presence(name, version) not in absent
    )


def _value(assignment: Assignment, entry: EnvVar) -> Iterator[Hit]:
    value = assignment.value
    is_open = not value.is_known or not value.text or "$" in value.text
    if assignment.origin == "prose" or is_open or entry.pattern is None:
        return
    if not re.fullmatch(entry.pattern, value.text):
        message = f"{entry.name} takes {entry.values}, not {value.text[:40]!r}"
        yield Hit("ENV024", value.place, message)


@on_document("ENV008", "ENV026")
def vllm_version(view: DocumentView) -> Iterator[Hit]:
    """VLLM_VERSION."""
    for assignment, version in _seen(view):
        stated = parse_version(assignment.value.text) if assignment.name == "VLLM_VERSION" else None
        if stated is None:
            continue
        edits = remove_assignment(assignment)
        if stated.base == version.base or view.versions.is_assumed:
            message = "VLLM_VERSION overrides the detection of the version, and lies after the next update"
            yield Hit("ENV026", assignment.place, message, None, edits)
        else:
            message = f"VLLM_VERSION says {stated}, the image has vLLM {version.base}"
            yield Hit("ENV008", assignment.place, message, None, edits)


@on_document("ENV009", "ENV021", "ENV016", "ENV028", "ENV029")
def values(view: DocumentView) -> Iterator[Hit]:
    """Values that are questionable by themselves."""
    for assignment, _ in _seen(view):
        name, text, place = assignment.name, assignment.value.text, assignment.place
        if assignment.origin == "prose":
            continue
        if name == "PYTORCH_NPU_ALLOC_CONF":
            if "expandable_segments:True" in text and re.search("max_split_size_mb|garbage_collection", text):
                yield Hit("ENV009", place, "expandable_segments:True does not go with the other options")
            elif text == "expandable_segments:True":
                yield Hit("ENV021", place, "vllm-ascend sets expandable_segments:True by itself")
        elif name == "HCCL_CONNECT_TIMEOUT" and text.isdigit() and not 120 <= int(text) <= 7200:
            yield Hit("ENV016", place, f"{text} seconds; HCCL takes 120 to 7200")
        elif name == "HCCL_EXEC_TIMEOUT" and text.isdigit() and 0 < int(text) < 600:
            yield Hit("ENV029", place, f"collectives give up after {text} seconds; the default is 1836")
        elif name == "PYTHONPATH":
            for part in text.split(":"):
                if "vllm" in part and not part.startswith((_WORKSPACE, "$")):
                    yield Hit("ENV028", place, f"{part} is imported instead of what the image holds")
                    break


@on_document("ENV013", "ENV027")
def repeated(view: DocumentView) -> Iterator[Hit]:
    """Variables exported twice in one script without a command between that would see the first."""
    last: dict[tuple[int, str], Assignment] = {}
    starts = [launch.place.start for launch in view.document.launches if launch.kind != "fragment"]
    for assignment in view.document.assignments:
        is_known = any(assignment.name in table.entries for table in view.knowledge.variables())
        if assignment.origin != "export" or assignment.block < 0 or not is_known:
            continue
        key = (assignment.block, assignment.name)
        before = last.get(key)
        last[key] = assignment
        if before is None or assignment.name in assignment.value.unknown:
            continue
        between = view.document.text[before.place.end : assignment.place.start]
        is_used = any(before.place.start < start < assignment.place.start for start in starts)
        written = view.document.text[assignment.place.start : assignment.place.end]
        if is_used or _BRANCH.search(between) or re.search(rf"\$\{{?{assignment.name}\b", written + between):
            continue
        if before.value.text == assignment.value.text:
            message = f"{assignment.name} is exported in line {before.place.line} already"
            edits = remove_assignment(assignment)
            yield Hit("ENV013", assignment.place, message, None, edits)
        else:
            message = f"line {assignment.place.line} sets {assignment.name} to something else; that counts"
            yield Hit("ENV027", before.place, message)
