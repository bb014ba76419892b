"""Flags that only vLLM knows, as data: which value they take, and what Qanat says when one is used.

The table is `data/known_flags.json`; keys inside JSON-valued flags are in `data/json_keys.json`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from qanat.config.values import Kind
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

HIDDEN = "(hidden)"
"""Shown instead of a value that is a secret."""


@dataclass(frozen=True)
class KnownFlag:
    """One flag of `vllm serve` without a field in `EngineConfig`.

    Attributes:
        name: without dashes at the front, with dashes inside.
        kind: how its value is read.
        last: last vLLM version that has it, "" if the newest one looked at still does.
        is_refused: the start fails when it is used.
        outcome: "no effect" or "not yet in this version"; empty if refused.
        why: the reason.
        neutral: values that ask for what happens anyway, as text.
        is_secret: its value is never printed.
    """

    name: str
    kind: Kind
    last: str
    is_refused: bool
    outcome: str
    why: str
    neutral: tuple[str, ...]
    is_secret: bool

    def decide(self, value: object) -> Decision | None:
        """What is said about this use; None if it asks for what happens anyway.

        Raises:
            ConfigError: the flag is refused.
        """
        flag = f"--{self.name}"
        if self.is_refused:
            if str(value).lower() in self.neutral or value is False:
                return None
            raise ConfigError(f"{flag} is refused: {self.why}.", param=flag)
        why = f"{self.why}; vLLM itself dropped it after {self.last}" if self.last else self.why
        return Decision(flag, HIDDEN if self.is_secret else value, self.outcome, why)


def read_data(name: str) -> Any:
    """A JSON file of this package's `data` folder."""
    return json.loads((Path(__file__).parent / "data" / name).read_text(encoding="utf-8"))


@functools.cache
def known_flags() -> Mapping[str, KnownFlag]:
    """All of them by name, in alphabetical order."""
    data = read_data("known_flags.json")
    flags = {}
    for group in data["groups"].values():
        for name, (kind, _, last) in group["flags"].items():
            flags[name] = KnownFlag(
                name=name,
                kind=Kind[kind],
                last="" if last == data["latest"] else last,
                is_refused=group["reaction"] == "refuse",
                outcome=group["outcome"] or "",
                why=group["why"],
                neutral=tuple(data["neutral"].get(name, ())),
                is_secret=name in data["secret"],
            )
    return dict(sorted(flags.items()))


@functools.cache
def known_aliases() -> Mapping[str, str]:
    """Short spellings, with their dash, of the known flags."""
    aliases: dict[str, str] = read_data("known_flags.json")["aliases"]
    return aliases


@functools.cache
def _json_keys() -> Mapping[str, list[str]]:
    keys: dict[str, list[str]] = read_data("json_keys.json")["keys"]
    return keys


def check_json_keys(name: str, value: Mapping[str, object]) -> list[Decision]:
    """One decision for each key that neither vLLM nor vLLM-Ascend knows, with the nearest known one.

    Args:
        name: flag without dashes at the front, or a dotted path below one.
        value: what was given; sections are checked too.
    """
    known = _json_keys().get(name)
    if known is None:
        return []
    decisions = []
    for key, inner in value.items():
        if key not in known:
            why = f"no such key in --{name}{_elsewhere(name, key)}{did_you_mean(key, known)}"
            decisions.append(Decision(f"--{name}.{key}", inner, "ignored", why))
        elif isinstance(inner, Mapping):
            decisions += check_json_keys(f"{name}.{key}", inner)
    return decisions


def _elsewhere(name: str, key: str) -> str:
    """Where a misplaced key belongs."""
    homes = [home for home, keys in _json_keys().items() if key in keys and home != name]
    return f"; it belongs in --{homes[0]}" if homes else ""


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The nearest known word as "; did you mean X?", with `prefix` before it; empty if none is near."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else ""
