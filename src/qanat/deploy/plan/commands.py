"""A wish as the command line that states it."""

from __future__ import annotations

import json
import shlex
from enum import Enum
from typing import Any

import msgspec

from qanat.config.flag_names import flag_of
from qanat.deploy.plan.wish import Override, Wish


def command_line(wish: Wish) -> str:
    """The call of `qanat deploy plan` that asks for this wish; what is left to the planner is left out."""
    return shlex.join(["qanat", "deploy", "plan", *arguments_of(wish)])


def arguments_of(wish: Wish) -> list[str]:
    """The flags of `qanat deploy plan` for a wish, in the order of its fields."""
    words: list[str] = []
    for field in msgspec.structs.fields(Wish):
        value = getattr(wish, field.name)
        if value == field.default or (field.default is msgspec.NODEFAULT and not value):
            continue
        words += _words(flag_of(field.name), value)
    return words


def _words(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, Enum):
        return [flag, str(value.value)]
    if isinstance(value, dict):
        return [flag, *(f"{name}={override_text(one)}" for name, one in value.items())]
    if isinstance(value, tuple):
        return [flag, *value]
    return [flag, str(value)]


def override_text(value: Override) -> str:
    """The value of an override as it stands behind its name; `read_override` reads it back."""
    return value if isinstance(value, str) else json.dumps(value)


def read_override(text: str) -> Override:
    """A number, a switch, a list or a mapping where the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | list | dict) else text
