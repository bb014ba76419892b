"""What a command is, and how its command line is read: flags of its own beside those of the engine."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qanat.config.command_line import Grammar, read_command_line
from qanat.config.engine_config import OPTIONS, EngineConfig
from qanat.config.env import FILE_VARIABLE, Environment, read_environment
from qanat.config.flag_names import field_of
from qanat.config.options import Option, option, options_of
from qanat.config.values import Kind, read_text
from qanat.config.wishes import (
    Setting,
    build,
    merge,
    settings_of_flags,
    settings_of_mapping,
    settings_of_variables,
)
from qanat.core.errors import ConfigError

HELP_FLAGS = ("-h", "--help")
MODEL_WORD = "MODEL"
"""Placeholder of a command's word that stands for --model."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Settings file."""

    config: str | None = option(
        Kind.TEXT,
        None,
        "YAML file with flags as keys. A flag on the command line goes before its variable QANAT_<FLAG>, and that "
        "before the file.",
    )


@dataclass(frozen=True)
class Command:
    """One command of `qanat`.

    Attributes:
        name: as it is called.
        summary: one line for the list of commands.
        description: what it does, for its own help.
        examples: command lines, one each.
        groups: groups of engine flags that it takes.
        own: a dataclass of flags of its own; those that it inherits count too.
        word: placeholder of the word that it takes beside flags; empty for none.
        word_help: what that word is.
        takes_file: whether settings may stand in a file given as --config.
    """

    name: str
    summary: str
    description: str
    examples: tuple[str, ...]
    groups: tuple[type, ...]
    own: type
    word: str
    word_help: str
    takes_file: bool = True

    @property
    def options(self) -> list[Option]:
        """All its flags, its own first."""
        files = (FileOptions,) if self.takes_file else ()
        return self.own_options + [one for group in (*files, *self.groups) for one in options_of(group)]

    @property
    def own_options(self) -> list[Option]:
        """Flags of its own: of its dataclass and of those that it inherits from, but for its groups."""
        bases = [
            base for base in self.own.__mro__ if dataclasses.is_dataclass(base) and base not in self.groups
        ]
        return [one for base in bases for one in options_of(base)]


@dataclass(frozen=True)
class Invocation:
    """A command line that has been read.

    Attributes:
        wishes: the engine's settings.
        own: the command's own settings, an instance of `Command.own`.
        words: what is neither flag nor value; a model is in the wishes already.
        environment: variables that were read with it.
    """

    wishes: EngineConfig
    own: Any
    words: tuple[str, ...]
    environment: Environment


def wants_help(arguments: Sequence[str]) -> bool:
    """True if the command's help is asked for; what stands behind a bare -- is text."""
    return any(
        argument in HELP_FLAGS for argument in itertools.takewhile(lambda each: each != "--", arguments)
    )


def read_invocation(
    command: Command, arguments: Sequence[str], environment: Environment | None = None
) -> Invocation:
    """Reads the command line, variables and the settings file.

    Args:
        command: which one.
        arguments: without the command's name.
        environment: this process's unless given.

    Raises:
        ConfigError: anything wrong in any of them, with the place.
    """
    own_variables = _own_variables(command)
    environment = environment or read_environment(own_variables=own_variables)
    grammar = Grammar.of(command.options)
    line = read_command_line(arguments, grammar)
    flags, notes = settings_of_flags(line.written, grammar.kinds)
    own_names = {one.flag[2:]: one for one in (*command.own_options, *options_of(FileOptions))}
    own, own_notes = merge(
        [
            [setting for setting in flags if setting.name in own_names],
            [
                Setting(one.flag[2:], read_text(one.kind, [environment.flags[name]], name), name)
                for name, one in own_variables.items()
                if name in environment.flags
            ],
        ]
    )
    for name, setting in own.items():
        own_names[name].check(setting.value, setting.origin)
    engine_variables = {
        name: text
        for name, text in environment.flags.items()
        if name != FILE_VARIABLE and name not in own_variables
    }
    file = own.pop("config", Setting("config", environment.flags.get(FILE_VARIABLE), FILE_VARIABLE))
    on_line = [setting for setting in flags if setting.name not in own_names]
    if command.word == MODEL_WORD:
        on_line += _model_of_word(line.words, on_line)
    settings, more_notes = merge(
        [
            on_line,
            settings_of_variables(engine_variables),
            settings_of_mapping(read_yaml(str(file.value)), str(file.value)) if file.value else [],
        ]
    )
    return Invocation(
        wishes=build(settings, (*line.notes, *notes, *own_notes, *more_notes)),
        own=command.own(**{field_of(name): setting.value for name, setting in own.items()}),
        words=line.words,
        environment=environment,
    )


def _own_variables(command: Command) -> dict[str, Option]:
    """The command's own flags by variable; a name that the engine has too stays the engine's."""
    return {one.variable: one for one in command.own_options if one.name not in OPTIONS}


def _model_of_word(words: Sequence[str], flags: Sequence[Setting]) -> list[Setting]:
    """The model that stands on the command line without a flag.

    Raises:
        ConfigError: more than one word, or a word and another --model.
    """
    if len(words) > 1:
        raise ConfigError(
            f"one model can be named, got {' and '.join(words)}; a value that belongs to a flag stands right behind "
            "it."
        )
    for word in words:
        for setting in flags:
            if setting.name == "model" and setting.value != word:
                raise ConfigError(
                    f"the model is named twice: {word} and {setting.origin} {setting.value}; leave one out.",
                    param="--model",
                )
    return [Setting("model", word, word) for word in words]


def read_yaml(path: str) -> dict[str, object]:
    """The mapping in a YAML file.

    Raises:
        ConfigError: it cannot be read, or is no mapping.
    """
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: cannot be read: {error}", param="--config") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path}: no valid YAML: {error}", param="--config") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path}: must hold flags as keys, such as port: 8000.", param="--config")
    return {str(key): value for key, value in values.items()}


def help_parser(command: Command, parser: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """A parser that knows every flag: for help and shell completion, not for reading.

    Args:
        command: which one.
        parser: filled in; a new one unless given.
    """
    parser = parser or argparse.ArgumentParser(prog=f"qanat {command.name}", add_help=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = command.description
    parser.epilog = "Examples:\n" + "\n".join(f"  {example}" for example in command.examples)
    parser.usage = f"{parser.prog} [{command.word}] [flags]" if command.word else f"{parser.prog} [flags]"
    if command.word:
        parser.add_argument("word", metavar=command.word, nargs="?", help=command.word_help)
    parser.add_argument(*HELP_FLAGS, action="help", help="Show this and exit.")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in command.options:
        if one.group not in groups:
            groups[one.group] = parser.add_argument_group(one.group)
        _add(groups[one.group], one)
    return parser


def _add(group: argparse._ArgumentGroup, one: Option) -> None:
    text = one.help.replace("%", "%%")
    if one.default not in (None, (), False, True):
        text += f" Default: {one.default}."
    extra: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS}
    if one.kind is Kind.SWITCH:
        extra["action"] = argparse.BooleanOptionalAction
    else:
        extra["metavar"] = one.metavar.split(" ")[0] if one.kind is Kind.TEXTS else one.metavar
        extra["nargs"] = "+" if one.kind is Kind.TEXTS else None
        if one.choices:
            extra["choices"] = one.choices
            extra["metavar"] = None
    group.add_argument(one.flag, *one.aliases, **extra)
