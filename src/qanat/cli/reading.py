"""What commands without engine flags share: reading their command line, writing their result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from qanat.cli.command import Command
from qanat.cli.terminal import echo, tell
from qanat.config.command_line import Grammar, read_command_line
from qanat.config.flag_names import field_of
from qanat.config.wishes import merge, settings_of_flags
from qanat.core.printable import printable

OptionsT = TypeVar("OptionsT")


def read_action(
    command: Command, options: type[OptionsT], arguments: Sequence[str]
) -> tuple[OptionsT, tuple[str, ...]]:
    """The flags of a command as an instance of `options`, and the words beside them.

    `options` is the command's own dataclass, and inherits from those of its groups. Flags that were not given keep
    the default of their field.

    Raises:
        ConfigError: an unknown flag, or a value that its flag does not take; names the flag.
    """
    values, words = read_values(command, arguments)
    return options(**values), words


def read_values(command: Command, arguments: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The flags that were given, by field name, and the words beside them.

    Raises:
        ConfigError: an unknown flag, or a value that its flag does not take; names the flag.
    """
    own = {one.flag.removeprefix("--"): one for one in command.options}
    grammar = Grammar.of(own.values(), with_known_flags=False)
    line = read_command_line(arguments, grammar)
    flags, _ = settings_of_flags(line.written, grammar.kinds)
    settings, notes = merge([flags])
    for note in (*line.notes, *notes):
        tell(f"{note.field}: {note.why}")
    for name, setting in settings.items():
        own[name].check(setting.value, setting.origin)
    return {field_of(name): setting.value for name, setting in settings.items()}, line.words


def say_json(data: Any) -> None:
    """Writes the result for programs."""
    say(json.dumps(data, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """Writes the result; what the terminal cannot show, and what would steer it, is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    echo(printable(text).encode(encoding, errors="backslashreplace").decode(encoding))
