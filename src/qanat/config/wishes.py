"""Puts the wishes together: command line before `QANAT_` variables before the YAML file before defaults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.config.command_line import Written
from qanat.config.engine_config import OPTIONS, EngineConfig
from qanat.config.flag_names import field_of
from qanat.config.known_flags import HIDDEN, did_you_mean, known_flags
from qanat.config.options import VARIABLE_PREFIX, Option
from qanat.config.values import Kind, read_text, read_value
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError


@dataclass(frozen=True)
class Setting:
    """One setting from one source.

    Attributes:
        name: flag name without dashes at the front, dashes inside.
        value: the parsed value.
        origin: where it stands, as the user wrote it: a flag, a variable, or a file and its key.
    """

    name: str
    value: object
    origin: str


def settings_of_flags(
    written: Sequence[Written], kinds: Mapping[str, Kind]
) -> tuple[list[Setting], list[Decision]]:
    """Settings of the command line: the last use of a flag wins; JSON is merged, keys over whole values.

    Args:
        written: uses of flags.
        kinds: value kind of each flag, those of the command itself included.

    Raises:
        ConfigError: a value that cannot be read.
    """
    by_name: dict[str, list[Written]] = {}
    for use in written:
        by_name.setdefault(use.name, []).append(use)
    settings, notes = [], []
    for name, uses in by_name.items():
        whole = [use for use in uses if not use.path]
        if len(whole) > 1:
            why = "given more than once; the last one holds"
            is_secret = _is_secret(name)
            shown = [HIDDEN if is_secret else " ".join(use.texts) for use in (whole[0], whole[-1])]
            notes.append(Decision(f"--{name}", shown[0], shown[1], why))
        value = read_text(kinds[name], whole[-1].texts, whole[-1].spelling) if whole else None
        paths = [use for use in uses if use.path]
        if paths:
            value = _with_keys(value if isinstance(value, Mapping) else {}, paths)
        settings.append(Setting(name, value, uses[-1].spelling))
    return settings, notes


def settings_of_variables(variables: Mapping[str, str]) -> list[Setting]:
    """Settings of `QANAT_<FLAG>` variables, given by variable name; lists are separated by commas.

    Raises:
        ConfigError: a value that cannot be read.
    """
    settings = []
    for variable, text in variables.items():
        name = variable.removeprefix(VARIABLE_PREFIX).lower().replace("_", "-")
        kind = _kind(name)
        texts = [part.strip() for part in text.split(",") if part.strip()] if kind is Kind.TEXTS else [text]
        settings.append(Setting(name, read_text(kind, texts, variable), variable))
    return settings


def settings_of_mapping(values: Mapping[str, object], source: str = "") -> list[Setting]:
    """Settings of a YAML file or of keyword arguments; `no-<switch>: true` is understood.

    Args:
        values: by flag name, with dashes or underscores.
        source: the file's name, put before each key in messages.

    Raises:
        ConfigError: an unknown key, with the nearest known one, or a value that cannot be read.
    """
    settings = []
    for key, value in values.items():
        origin = f"{source}: {key}" if source else key
        name = str(key).replace("_", "-").lstrip("-")
        positive = name.removeprefix("no-")
        if name not in _names() and positive in _names() and _kind(positive) is Kind.SWITCH:
            settings.append(Setting(positive, not read_value(Kind.SWITCH, value, origin), origin))
        elif name in _names():
            if value is not None:
                settings.append(Setting(name, read_value(_kind(name), value, origin), origin))
        else:
            raise ConfigError(f"{origin}: unknown setting{did_you_mean(name, _names())}", param=origin)
    return settings


def merge(sources: Iterable[Sequence[Setting]]) -> tuple[dict[str, Setting], list[Decision]]:
    """One setting per flag: the first source that has it wins, and the others are named."""
    merged: dict[str, Setting] = {}
    notes = []
    for settings in sources:
        for setting in settings:
            winner = merged.setdefault(setting.name, setting)
            if winner is not setting and winner.value != setting.value:
                shown = HIDDEN if _is_secret(setting.name) else setting.value
                notes.append(Decision(setting.origin, shown, "ignored", f"{winner.origin} goes before it"))
    return merged, notes


def build(settings: Mapping[str, Setting], notes: Sequence[Decision] = ()) -> EngineConfig:
    """The wishes.

    Raises:
        ConfigError: a value out of bounds, naming where it stands.
    """
    fields: dict[str, Any] = {}
    foreign: dict[str, object] = {}
    for name, setting in settings.items():
        known = _option(name)
        if known is None:
            foreign[name] = setting.value
        else:
            known.check(setting.value, setting.origin)
            fields[known.name] = setting.value
    return EngineConfig(**fields, foreign_flags=foreign, notes=tuple(notes))


def from_keywords(values: Mapping[str, object]) -> EngineConfig:
    """The wishes from keyword arguments, where flags that only vLLM knows are allowed and values may be text.

    Raises:
        ConfigError: an unknown keyword, with the nearest known one, or a value that cannot be read.
    """
    return build({setting.name: setting for setting in settings_of_mapping(values)})


def _names() -> list[str]:
    return [known.flag.removeprefix("--") for known in OPTIONS.values()] + list(known_flags())


def _option(name: str) -> Option | None:
    return OPTIONS.get(field_of(name))


def _kind(name: str) -> Kind:
    known = _option(name)
    return known.kind if known else known_flags()[name].kind


def _is_secret(name: str) -> bool:
    known = _option(name) or known_flags().get(name)
    return known is not None and known.is_secret


def _with_keys(whole: Mapping[str, object], uses: Sequence[Written]) -> dict[str, object]:
    """The JSON value with `--flag.key value` and `--flag.key+ value` applied in order."""
    result: dict[str, Any] = _copy(whole)
    for use in uses:
        place = result
        for key in use.path[:-1]:
            inner = place.get(key)
            place[key] = inner if isinstance(inner, dict) else {}
            place = place[key]
        value = _read_key(use.texts[0])
        if use.is_appended:
            before = place.get(use.path[-1], [])
            if not isinstance(before, list):
                raise ConfigError(f"{use.spelling}: {use.path[-1]} is no list.", param=use.spelling)
            value = [*before, value]
        place[use.path[-1]] = value
    return result


def _read_key(text: str) -> Any:
    """JSON where it is JSON, else the text itself: `FULL`, `true`, `[1, 2]`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _copy(value: Any) -> Any:
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value
