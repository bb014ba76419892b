"""What a flag is, declared once beside its field: type, help, aliases, bounds. All flags, variables and docs follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qanat.config.flag_names import flag_of
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

VARIABLE_PREFIX = "QANAT_"


@dataclass(frozen=True)
class Option:
    """One setting.

    Attributes:
        name: field name.
        kind: how its value is read.
        help: one or two sentences; the first says what it does.
        default: value when nothing is said.
        group: title of the group of flags.
        aliases: other spellings on the command line, with their dashes.
        choices: the only texts allowed; empty for any.
        minimum: smallest number allowed.
        maximum: largest number allowed.
        is_secret: never printed.
    """

    name: str
    kind: Kind
    help: str
    default: object
    group: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    is_secret: bool = False

    @property
    def flag(self) -> str:
        """The flag, as help shows it."""
        return flag_of(self.name)

    @property
    def variable(self) -> str:
        """The environment variable that sets it too."""
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def metavar(self) -> str:
        """Placeholder of the value; empty for switches."""
        return "{" + ",".join(self.choices) + "}" if self.choices else self.kind.value

    def check(self, value: object, where: str) -> None:
        """Refuses a value that is of the wrong type or out of bounds.

        Raises:
            ConfigError: naming `where`, the value and what is allowed.
        """
        if value is None and self.default is None:
            return
        if not isinstance(value, _TYPES[self.kind]) or (
            isinstance(value, bool) and self.kind is not Kind.SWITCH
        ):
            raise ConfigError(f"{where}: {value!r} is not of the type {_names(self.kind)}.", param=where)
        if self.choices and value not in self.choices:
            raise ConfigError(f"{where}: {value!r} is not one of {', '.join(self.choices)}.", param=where)
        if isinstance(value, int | float):
            if self.minimum is not None and value < self.minimum:
                raise ConfigError(f"{where}: {value} is too small; the least is {self.minimum}.", param=where)
            if self.maximum is not None and value > self.maximum:
                raise ConfigError(f"{where}: {value} is too large; the most is {self.maximum}.", param=where)


_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.TEXTS: (tuple,),
    Kind.COUNT: (int,),
    Kind.LENGTH: (int,),
    Kind.BYTES: (int,),
    Kind.NUMBER: (int, float),
    Kind.SWITCH: (bool,),
    Kind.JSON: (dict,),
}


def _names(kind: Kind) -> str:
    return " or ".join(kind.__name__ for kind in _TYPES[kind])


def option(
    kind: Kind,
    default: Any,
    help_text: str,
    *,
    aliases: tuple[str, ...] = (),
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    is_secret: bool = False,
) -> Any:
    """A dataclass field that is also a flag; see `Option` for the arguments."""
    extra = {
        "kind": kind,
        "help": help_text,
        "aliases": aliases,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "is_secret": is_secret,
    }
    return dataclasses.field(default=default, metadata={"option": extra})


def options_of(group: type) -> Iterator[Option]:
    """The flags that a group of options declares itself, in order; its docstring's first line is the title."""
    title = (group.__doc__ or group.__name__).strip().splitlines()[0].rstrip(".")
    inherited = {
        field.name
        for base in group.__bases__
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    for field in dataclasses.fields(group):
        if "option" in field.metadata and field.name not in inherited:
            extra = field.metadata["option"]
            yield Option(name=field.name, default=field.default, group=title, **extra)
