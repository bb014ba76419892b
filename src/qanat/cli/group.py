"""A command with actions: `qanat deploy plan`, `qanat bench latency`. Each action has a file of its own."""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from qanat.cli.command import Command, help_parser, wants_help
from qanat.cli.terminal import echo
from qanat.core.errors import ConfigError


class ActionModule(Protocol):
    """An action's file."""

    COMMAND: Command

    def main(self, arguments: Sequence[str]) -> int:
        """Runs the action; returns the exit code."""


@dataclass(frozen=True)
class CommandGroup:
    """A command whose first word says what to do.

    Attributes:
        name: of the command.
        about: what its actions have in common, for its help.
        actions: summary by name; each is a module of `package`.
        package: name of the package that holds them.
        examples: command lines, one each.
    """

    name: str
    about: str
    actions: Mapping[str, str]
    package: str
    examples: tuple[str, ...]

    def main(self, arguments: Sequence[str]) -> int:
        """Runs an action.

        Args:
            arguments: the command line without `qanat` and the command's name.

        Raises:
            ConfigError: there is no such action, or its command line is wrong.
        """
        name = arguments[0] if arguments else ""
        if name not in self.actions:
            if not arguments or wants_help(arguments):
                echo(self.overview())
                return 0 if arguments else 2
            near = difflib.get_close_matches(name, self.actions, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ConfigError(f"there is no action {name}; there are: {', '.join(self.actions)}.{hint}")
        module = self.action(name)
        if wants_help(arguments[1:]):
            help_parser(module.COMMAND).print_help()
            return 0
        return module.main(arguments[1:])

    def action(self, name: str) -> ActionModule:
        """The file of an action."""
        return cast(ActionModule, importlib.import_module(f"{self.package}.{name}"))

    def overview(self) -> str:
        """What the command's `--help` says."""
        width = max(len(name) for name in self.actions)
        actions = "\n".join(f"  {name:{width}}  {summary}" for name, summary in self.actions.items())
        examples = "\n".join(f"  {example}" for example in self.examples)
        return (
            f"usage: qanat {self.name} ACTION ...\n\n{self.about}\n\n"
            f"actions:\n{actions}\n\nExamples:\n{examples}\n\n"
            f"`qanat {self.name} ACTION --help` lists the flags of an action."
        )

    def fill_parser(self, parser: argparse.ArgumentParser) -> None:
        """Adds every action with its flags, for shell completion."""
        actions = parser.add_subparsers()
        for name, summary in self.actions.items():
            help_parser(self.action(name).COMMAND, actions.add_parser(name, help=summary, add_help=False))
