"""JSON-valued flags: syntax, keys by version, keys that belong elsewhere, types."""

from __future__ import annotations

import json
from collections.abc import Iterator

from qanat.config.flag_names import flag_of
from qanat.deploy.knowledge.kinds.settings import ConfigKey
from qanat.deploy.knowledge.versions import Presence, must_parse
from qanat.deploy.lint.files import DocumentView, oldest_claimed
from qanat.deploy.lint.names import Named, nearest
from qanat.deploy.lint.reading import as_integer
from qanat.deploy.lint.registry import Hit, on_document, on_flags
from qanat.deploy.lint.rules.values import bounds, is_complete, is_outside, not_one_of
from qanat.deploy.lint.view import ADDITIONAL, COMPILATION, LaunchView
from qanat.deploy.sources.json_text import UNKNOWN, JsonFault, JsonNode
from qanat.deploy.sources.values import Place

CHECKED_PARENTS = {COMPILATION: ("pass_config",)}
KINDS = {"list": "a list", "int": "a whole number", "json": "another kind of value"}
OBJECT_SINCE = must_parse("0.18.0")
"""From this vLLM, the first that was tried, --compilation-config takes no level."""
TEXT_AS_WELL = frozenset(("--hf-overrides", "--model-loader-extra-config", "--pt-load-map-location"))
"""Flags that take JSON, and any other text too."""
STRICT_SINCE = must_parse("0.17.0")
"""From this vLLM every JSON argument refuses unknown keys; --compilation-config does so from 0.13."""


@on_flags("CLI019")
def syntax(view: LaunchView) -> Iterator[Hit]:
    """Values that cannot be read as JSON."""
    for named in view.named:
        if named.entry.kind != "json" or named.keys or named.flag.value is None:
            continue
        read = named.flag.json
        if view.launch.kind == "fragment" and "..." in named.flag.value.text:
            continue
        if isinstance(read, JsonFault) and named.flag.value.text.lstrip().startswith(("{", "[")):
            yield Hit("CLI019", read.place, f"{named.name} is no JSON: {read.message}")
        elif isinstance(read, JsonFault) and named.flag.value.is_known and _takes_json_only(view, named.name):
            yield Hit("CLI019", named.flag.value.place, f"{named.name} takes JSON: {read.message}")
        elif isinstance(read, JsonNode) and named.name in view.knowledge.json_flags:
            yield from _no_object(view, named, read)


def _no_object(view: LaunchView, named: Named, read: JsonNode) -> Iterator[Hit]:
    """A number or a list where an object belongs; -O3 is a level that stands in its flag."""
    value = named.flag.value
    is_plain = isinstance(read.value, bool | int | float | str | list)
    if value is None or not is_plain or view.version.base < OBJECT_SINCE or named.flag.name.startswith("-O"):
        return
    is_level = named.name == COMPILATION and isinstance(read.value, int)
    advice = f"-O{read.value}" if is_level else "an object in single quotes"
    level = f"; a level is given by {advice}" if is_level else ""
    yield Hit("CLI019", value.place, f"{named.name} takes an object{level}", advice)


def _takes_json_only(view: LaunchView, name: str) -> bool:
    """Whether a flag takes nothing but JSON in this version; --compilation-config took a level once."""
    if name in view.knowledge.json_flags:
        return name != COMPILATION
    return name not in TEXT_AS_WELL and view.version.base >= STRICT_SINCE


@on_flags("CLI007")
def repeated_keys(view: LaunchView) -> Iterator[Hit]:
    """Keys of one object given twice."""
    for flag in _json_flags(view):
        root = view.json(flag)
        if root is None:
            continue
        for node in (root, *(member for _, member in root.walk())):
            for key in node.repeated:
                place = node.members[key].key_place or node.place
                yield Hit("CLI007", place, f"the key {key} is given twice; only the last one counts")


def _json_flags(view: LaunchView) -> list[str]:
    names = [named.name for named in view.named if named.name in view.knowledge.json_flags]
    return list(dict.fromkeys(names))


@on_flags("CLI003", "CLI004", "CLI020", "CLI021", "CLI022", "CLI023", "CLI027", "GRA017")
def config_keys(view: LaunchView) -> Iterator[Hit]:
    """Keys of the arguments that fill vLLM's own configuration."""
    for flag in _json_flags(view):
        root, table = view.json(flag), view.knowledge.config_keys(flag)
        if root is None or table is None or flag == ADDITIONAL:
            continue
        is_strict = flag == COMPILATION or view.version.base >= STRICT_SINCE
        for path, node in _checked(root, CHECKED_PARENTS.get(flag, ())):
            name, place = ".".join(path), node.key_place or node.place
            entry = table.entries.get(f"{flag} {name}")
            presence = table.presence(f"{flag} {name}", view.version) if entry else None
            if entry is None:
                yield from _unknown_key(view, flag, name, place) if is_strict else ()
            elif presence is Presence.GONE:
                yield Hit("CLI023", place, f"{name} in {flag} was last in vLLM {entry.until}")
            elif presence is Presence.NOT_YET and is_strict:
                message = f"{name} in {flag} exists from vLLM {entry.since} on"
                yield from (Hit(rule, place, message) for rule in ("CLI003", "CLI004"))
            else:
                yield from _value(view, flag, entry, node)


def _checked(root: JsonNode, parents: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], JsonNode]]:
    """The members of an object and of those of its members whose keys are known."""
    for key, node in root.members.items():
        yield (key,), node
        if key in parents:
            for inner, member in node.members.items():
                yield (key, inner), member


def _unknown_key(view: LaunchView, flag: str, name: str, place: Place) -> Iterator[Hit]:
    home = _home(view, flag, name)
    if home is not None:
        message, fix = f"{name} belongs to {home}, not to {flag}", f"move {name} to {home}"
        yield from (Hit(rule, place, message, fix) for rule in ("CLI020", "CLI021"))
        return
    near = nearest(name, _present_keys(view, flag))
    advice = f"did you mean {near}?" if near else "no key is like it"
    for rule in ("CLI003", "CLI004"):
        yield Hit(rule, place, f"{flag} has no key {name}; {advice}", advice)


def _home(view: LaunchView, flag: str, name: str) -> str | None:
    """Another JSON argument, or a flag, that has this key in this version."""
    for other in sorted(view.knowledge.json_flags - {flag}, key=lambda one: one != ADDITIONAL):
        if name in _present_keys(view, other):
            return other
    as_flag = flag_of(name)
    return as_flag if view.names is not None and as_flag in view.names.names else None


def _present_keys(view: LaunchView, flag: str) -> list[str]:
    table = view.knowledge.config_keys(flag)
    if table is None:
        return []
    absent = (Presence.GONE, Presence.NOT_YET)
    return [
        entry.name
        for key, entry in table.entries.items()
        if entry.flag == flag and table.presence(key, view.version) not in absent
    ]


def _value(view: LaunchView, flag: str, entry: ConfigKey, node: JsonNode) -> Iterator[Hit]:
    value, place = node.value, node.place
    if value is UNKNOWN or value is None:
        return
    refused = "CLI022" if flag == ADDITIONAL else "CLI027"
    if isinstance(value, str) and _is_no_choice(view, entry, value):
        message, advice = not_one_of(value, entry.choices)
        rule = "GRA017" if entry.name == "cudagraph_mode" else refused
        yield Hit(rule, place, f"{entry.name} {message}", advice or "one of these")
    elif isinstance(value, int | float) and not isinstance(value, bool) and is_outside(entry, value):
        yield Hit(refused, place, f"{entry.name} is {value:.10g}; it takes {bounds(entry)}")
    elif _is_other_kind(entry, node):
        message = f"{entry.name} in {flag} takes {KINDS[entry.kind or 'json']}, not {json.dumps(value)[:40]}"
        yield Hit(refused, place, message, "a value of that kind")
    elif entry.kind == "list" and entry.minimum is not None:
        for item in node.items:
            number = as_integer(item)
            if item.value is not UNKNOWN and (number is None or is_outside(entry, number)):
                message = (
                    f"{entry.name} takes whole numbers of {bounds(entry)}, not {json.dumps(item.value)[:40]}"
                )
                yield Hit(refused, item.place, message, f"numbers of {bounds(entry)}")
    elif entry.kind == "bool" and isinstance(value, str):
        right = "false" if value.strip().lower() in ("false", "0", "no", "off") else "true"
        message = f'{entry.name} in {flag} is a string "{value}", not a boolean'
        yield Hit("CLI022", place, message, f"write {right} without quotes")


def _is_no_choice(view: LaunchView, entry: ConfigKey, value: str) -> bool:
    is_any = not entry.choices or not is_complete(entry, view.version)
    return not is_any and value.upper() not in map(str.upper, entry.choices)


def _is_other_kind(entry: ConfigKey, node: JsonNode) -> bool:
    """Whether a value is none of its kind: a number in quotes is one."""
    value = node.value
    if entry.kind == "list":
        return isinstance(value, str | int | float)
    return entry.kind == "int" and isinstance(value, str) and bool(value) and as_integer(node) is None


@on_flags("ADD001", "ADD002", "ADD003", "ADD004", "ADD005", "CLI003", "CLI022", "MOE012")
def additional_config(view: LaunchView) -> Iterator[Hit]:
    """Keys of --additional-config, by release of vllm-ascend."""
    root, table = view.json(ADDITIONAL), view.knowledge.config_keys(ADDITIONAL)
    if root is None or table is None:
        return
    parents = {key.split()[-1].split(".")[0] for key in table.entries if "." in key}
    for path, node in _checked(root, tuple(parents)):
        name, place = ".".join(path), node.key_place or node.place
        entry = table.entries.get(f"{ADDITIONAL} {name}")
        if entry is None:
            yield from _unknown_additional(view, path, place)
            continue
        presence = table.presence(f"{ADDITIONAL} {name}", view.version)
        if presence in (Presence.GONE, Presence.NOT_YET):
            if len(path) == 1:
                yield from _absent_additional(view, entry, place, presence)
            continue
        if entry.replacement and entry.replacement.startswith("scheduler_config."):
            yield Hit("ADD005", place, f"{name} belongs under scheduler_config", f"{entry.replacement}")
        yield from _value(view, ADDITIONAL, entry, node)


def _unknown_additional(view: LaunchView, path: tuple[str, ...], place: Place) -> Iterator[Hit]:
    name = ".".join(path)
    if path[0] == "eplb_config":
        near = nearest(name, _present_keys(view, ADDITIONAL))
        advice = f"did you mean {near}?" if near else "remove it"
        yield Hit("CLI003", place, f"eplb_config has no key {path[-1]}; {advice}", advice)
        return
    home = _home(view, ADDITIONAL, name)
    present = _present_keys(view, ADDITIONAL)
    near = nearest(name, present)
    advice = "no key is like it"
    parents = [key.rpartition(".")[0] for key in present if key.rpartition(".")[2] == name]
    if len(path) == 1 and parents:
        advice = f"it belongs under {parents[0]}"
    elif home is not None and home != near:
        advice = f"it belongs to {home}"
    elif near is not None:
        advice = f"did you mean {near}?"
    for rule in ("ADD001", "ADD002"):
        yield Hit(rule, place, f"vllm-ascend {view.version} has no key {name}; {advice}", advice)


def _absent_additional(view: LaunchView, entry: ConfigKey, place: Place, presence: Presence) -> Iterator[Hit]:
    if presence is Presence.NOT_YET:
        message = f"{entry.name} is read from vllm-ascend {entry.since} on, not by {view.version}"
        if entry.name == "enable_flashcomm1":
            yield Hit("MOE012", place, message)
            return
        yield from (Hit(rule, place, message) for rule in ("ADD003", "ADD002"))
        return
    has_heir = entry.replacement is not None and entry.replacement != "nothing"
    fix = f"remove it; instead: {entry.replacement}" if has_heir else "remove it"
    message = f"{entry.name} was last read by vllm-ascend {entry.until}"
    yield from (Hit(rule, place, message, fix) for rule in ("ADD003", "ADD004"))


@on_document("ADD006")
def oldest_version(view: DocumentView) -> Iterator[Hit]:
    """Keys that the oldest release a guide names does not read."""
    minimum = oldest_claimed(view.document)
    table = view.knowledge.config_keys(ADDITIONAL)
    if minimum is None or table is None:
        return
    for launch in view.launches:
        root = launch.json(ADDITIONAL)
        for name, node in root.members.items() if root else ():
            key = f"{ADDITIONAL} {name}"
            if key not in table.entries or minimum >= launch.version:
                continue
            entry = table.entries[key]
            if table.presence(key, minimum) is Presence.NOT_YET and table.presence(key, launch.version) in (
                Presence.PRESENT,
                Presence.UNSURE,
            ):
                message = f"the text says from {minimum} on, but {name} is read from {entry.since} on"
                yield Hit("ADD006", node.key_place or node.place, message)
