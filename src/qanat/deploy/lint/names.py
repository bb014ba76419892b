"""Finding names: flags under their aliases and abbreviations, and the nearest known name of an unknown one."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qanat.deploy.knowledge.base import Table
from qanat.deploy.knowledge.kinds.settings import Flag
from qanat.deploy.knowledge.versions import Presence, Version
from qanat.deploy.sources import launch as sources

MIN_LIKENESS = 0.6
"""Ratio of matching characters from which two names may be the same thing misspelt."""


@dataclass(frozen=True)
class Named:
    """A flag of a command under its known name; `keys` is what stands behind dots (`-cc.cudagraph_mode`)."""

    flag: sources.Flag
    entry: Flag
    is_negated: bool = False
    is_abbreviated: bool = False
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The known name, with the subcommand where the table has one."""
        return self.entry.name


MAX_NAME_CHARS = 200
"""Of a written name; what is longer is like none."""

Tables = Sequence[tuple[Table[Flag], str]]

_SPELLINGS: dict[tuple[tuple[int, str], ...], tuple[Tables, dict[str, Flag], dict[str, Table[Flag]]]] = {}
"""What was made of each set of tables; it keeps them, so that no other table gets the identity of one."""


def _spellings(tables: Tables) -> tuple[dict[str, Flag], dict[str, Table[Flag]]]:
    """Flags by spelling, and the table of each flag."""
    names: dict[str, Flag] = {}
    table_of: dict[str, Table[Flag]] = {}
    for table, prefix in tables:
        for name, entry in table.entries.items():
            if name.startswith(prefix) and " " not in name[len(prefix) :]:
                names.update(dict.fromkeys((name[len(prefix) :], *entry.aliases), entry))
                table_of[entry.name] = table
    return names, table_of


class FlagNames:
    """The flags of one program in one version, by everything that leads to them.

    Args:
        tables: flags, each with what the names in it begin with ("serve " in the table of benchmarks).
        version: release of vllm-ascend.
    """

    def __init__(self, tables: Tables, version: Version) -> None:
        self.version = version
        key = tuple((id(table), prefix) for table, prefix in tables)
        if key not in _SPELLINGS:
            _SPELLINGS[key] = (tables, *_spellings(tables))
        _, self.names, self._tables = _SPELLINGS[key]

    def presence(self, entry: Flag) -> Presence:
        """Whether this version has a flag."""
        return self._tables[entry.name].presence(entry.name, self.version)

    def alias_since(self, named: Named) -> str | None:
        """The first vLLM that knows the spelling of a flag, if this version does not know it yet."""
        spelling = named.flag.name.split(".")[0]
        since, timeline = named.entry.alias_since.get(spelling), self._tables[named.entry.name].timeline
        if since is None or timeline is None:
            return None
        is_missing = timeline.presence(self.version.base, since, None) is Presence.NOT_YET
        return since if is_missing else None

    def find(self, flag: sources.Flag) -> Named | None:
        """The known flag that a written one means; None if there is none, or more than one."""
        head, *keys = flag.name.split(".")
        path = tuple(keys)
        if head in self.names:
            return Named(flag, self.names[head], keys=path)
        if head.startswith("-O") and "--compilation-config" in self.names:
            name = "--optimization-level" if head[2:].isdigit() else "--compilation-config"
            return Named(flag, self.names.get(name, self.names["--compilation-config"]), keys=path)
        positive = "--" + head.removeprefix("--no-")
        is_negated = head.startswith("--no-") and positive in self.names
        if is_negated and self.names[positive].kind == "bool":
            return Named(flag, self.names[positive], is_negated=True, keys=path)
        longer = [name for name in self.names if name.startswith(head) and self._has(name)]
        if head.startswith("--") and len(head) > 4 and len(longer) == 1:
            return Named(flag, self.names[longer[0]], is_abbreviated=True, keys=path)
        return None

    def _has(self, name: str) -> bool:
        presence = self.presence(self.names[name])
        return name.startswith("--") and presence not in (Presence.NOT_YET, Presence.GONE)

    def nearest(self, written: str) -> str | None:
        """The flag of this version most like a written one."""
        return nearest(written, self._present)

    @functools.cached_property
    def _present(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if self._has(name))


def nearest(written: str, known: Iterable[str]) -> str | None:
    """The known name most like a written one; None if none is like it.

    Letters count without case, dashes and underscores alike; a name whose words all occur comes first.
    """
    return _nearest(_plain(written)[:MAX_NAME_CHARS], tuple(known))


@functools.lru_cache(maxsize=64)
def _plain_names(known: tuple[str, ...]) -> dict[str, str]:
    return {_plain(name): name for name in known}


@functools.lru_cache(maxsize=8192)
def _nearest(plain: str, known: tuple[str, ...]) -> str | None:
    candidates = _plain_names(known)
    if plain in candidates:
        return candidates[plain]
    close = difflib.get_close_matches(plain, candidates, n=1, cutoff=MIN_LIKENESS + 0.12)
    if close:
        return candidates[close[0]]
    words = set(plain.strip("-").split("-"))
    containing = [name for name in candidates if words < set(name.strip("-").split("-"))]
    if len(words) > 1 and containing:
        return candidates[min(containing, key=len)]
    close = difflib.get_close_matches(plain, candidates, n=1, cutoff=MIN_LIKENESS + 0.05)
    return candidates[close[0]] if close else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
