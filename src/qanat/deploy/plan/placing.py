"""Where a switch stands in a release: a nested key, a key, or a variable."""

from __future__ import annotations

from typing import Any

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.versions import Presence, Version

ADDITIONAL = "--additional-config"
NESTED = "scheduler_config"
"""Scheduler switches move under this key once a release knows it."""


def key_path(name: str, version: Version, knowledge: Knowledge) -> tuple[str, ...] | None:
    """The path of a switch in --additional-config; None if this release does not read it there."""
    table = knowledge.config_keys(ADDITIONAL)
    for path in (f"{NESTED}.{name}", name):
        entry = f"{ADDITIONAL} {path}"
        if table and entry in table.entries and table.presence(entry, version) is Presence.PRESENT:
            return tuple(path.split("."))
    return None


def variable(name: str, version: Version, knowledge: Knowledge) -> str | None:
    """The variable that a release reads for a switch that became a key later; None if there is none."""
    table = knowledge.tables["ascend_variables"]
    for entry in table.entries.values():
        words = (entry.replacement or "").split()
        if entry.name.startswith("VLLM_ASCEND_ENABLE_") and words[:2] == [ADDITIONAL, name]:
            return str(entry.name) if table.presence(entry.name, version) is Presence.PRESENT else None
    return None


def put(
    name: str,
    value: Any,
    version: Version,
    knowledge: Knowledge,
    keys: dict[str, Any],
    env: dict[str, str],
) -> bool:
    """Writes a switch to where this release reads it; False if it reads it nowhere."""
    path = key_path(name, version, knowledge)
    if path is not None:
        inner = keys
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
        return True
    own = variable(name, version, knowledge)
    if own is not None:
        env[own] = str(int(value))
        return True
    return False
