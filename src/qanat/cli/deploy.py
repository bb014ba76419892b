"""`qanat deploy`: finds the action's file and runs it."""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Sequence
from typing import Protocol, cast

from qanat.cli.command import Command, help_parser, wants_help
from qanat.cli.terminal import echo
from qanat.core.errors import ConfigError

ACTIONS = {
    "plan": "plan a service for the machines there are, with a reason for every setting",
    "render": "write scripts, manifests and a README that run a plan",
    "lint": "check scripts, manifests and guides before they run",
    "preflight": "check a host before a deployment is started on it",
    "up": "run a rendered folder on this host",
    "diagnose": "say from logs and metrics why a service fails or is slow",
    "verify": "ask a running service until it is known to work",
}
"""Each is a module of `deploy_actions` with its `COMMAND` and a function `main(arguments) -> exit code`."""

EXAMPLES = (
    "qanat deploy plan --model Qwen3.5-35B-A3B --hardware atlas-800-a3 --concurrency 64 --output plan.yaml",
    "qanat deploy render plan.yaml deployment/",
    "qanat deploy preflight deployment/ --node server-0",
    "qanat deploy up deployment/",
    "qanat deploy verify http://127.0.0.1:8000",
    "qanat deploy diagnose serve.log",
    "qanat deploy lint run_p.sh run_d.sh proxy.sh --image v0.18.0rc1-a3",
)


class ActionModule(Protocol):
    """An action's file."""

    COMMAND: Command

    def main(self, arguments: Sequence[str]) -> int:
        """Runs the action; returns the exit code."""


def main(arguments: Sequence[str]) -> int:
    """Runs an action.

    Args:
        arguments: the command line without `qanat deploy`.

    Raises:
        ConfigError: there is no such action, or its command line is wrong.
    """
    name = arguments[0] if arguments else ""
    if name not in ACTIONS:
        if not arguments or wants_help(arguments):
            echo(overview())
            return 0 if arguments else 2
        near = difflib.get_close_matches(name, ACTIONS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no action {name}; there are: {', '.join(ACTIONS)}.{hint}")
    module = action(name)
    if wants_help(arguments[1:]):
        help_parser(module.COMMAND).print_help()
        return 0
    return module.main(arguments[1:])


def action(name: str) -> ActionModule:
    """The file of an action."""
    return cast(ActionModule, importlib.import_module(f"qanat.cli.deploy_actions.{name}"))


def overview() -> str:
    """What `qanat deploy --help` says."""
    width = max(len(name) for name in ACTIONS)
    actions = "\n".join(f"  {name:{width}}  {summary}" for name, summary in ACTIONS.items())
    examples = "\n".join(f"  {example}" for example in EXAMPLES)
    return (
        "usage: qanat deploy ACTION ...\n\n"
        "Helps to run vLLM-Ascend services. Nothing here needs torch or a card.\n\n"
        f"actions:\n{actions}\n\nExamples:\n{examples}\n\n"
        "`qanat deploy ACTION --help` lists the flags of an action."
    )


def fill_parser(parser: argparse.ArgumentParser) -> None:
    """Adds every action with its flags, for shell completion."""
    actions = parser.add_subparsers()
    for name, summary in ACTIONS.items():
        help_parser(action(name).COMMAND, actions.add_parser(name, help=summary, add_help=False))
