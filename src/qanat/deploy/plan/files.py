"""Plans and wishes as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from qanat.core.errors import ConfigError
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.wish import Wish
from qanat.deploy.text_files import read_text
from qanat.deploy.yaml_style import ExactDumper

DecodedT = TypeVar("DecodedT", Plan, Wish)


def encode_plan(plan: Plan) -> str:
    """A plan as YAML, equal for equal plans."""
    content = msgspec.to_builtins(plan)
    return yaml.dump(content, Dumper=ExactDumper, sort_keys=False, allow_unicode=True, width=110)


def decode_plan(text: str, where: str) -> Plan:
    """The plan that `encode_plan` wrote.

    Args:
        text: YAML.
        where: name of the file, for messages.

    Raises:
        ConfigError: no YAML, or not a plan; names the field.
    """
    return _decode(text, where, Plan, "a plan of `qanat deploy plan --output`")


def read_plan_file(path: Path, param: str | None = None) -> Plan:
    """The plan in a file; `param` is the flag that names it.

    Raises:
        ConfigError: it cannot be read, or is no plan; names the field.
    """
    return decode_plan(read_text(path, param), str(path))


def decode_wish(text: str, where: str) -> Wish:
    """What a user wants, from YAML with the fields of `Wish`; dashes in names count as underscores.

    Raises:
        ConfigError: no YAML, an unknown field or a value of the wrong kind; names the field.
    """
    return _decode(text, where, Wish, "a wish: fields such as model, hardware, scenario")


def decode_partial_wish(text: str, where: str) -> dict[str, Any]:
    """The fields that a wish file states, checked one by one; the rest may come from flags.

    Raises:
        ConfigError: as `decode_wish`, but model and hardware may be missing.
    """
    raw = _read(text, where, "a wish: fields such as model, hardware, scenario")
    known = {str(name).replace("-", "_"): value for name, value in raw.items()}
    filled = {"model": "", "hardware": "", **known}
    try:
        wish = msgspec.convert(filled, Wish)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: not a wish: {error}") from None
    return {name: getattr(wish, name) for name in known}


def _decode(text: str, where: str, kind: type[DecodedT], what: str) -> DecodedT:
    raw = _read(text, where, what)
    if kind is Wish:
        raw = {str(name).replace("-", "_"): value for name, value in raw.items()}
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: not {what}: {error}") from None


def _read(text: str, where: str, what: str) -> dict[Any, Any]:
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no valid YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: must hold {what}.")
    return raw
