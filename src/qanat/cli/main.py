"""The `qanat` command: finds the command's file and runs it."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from qanat.core.errors import CheckpointError, ConfigError, QanatError

COMMANDS = {
    "serve": "Serve a model over the OpenAI API.",
    "chat": "Talk to a model in the terminal.",
    "plan": "Show every setting with its reason, and the memory to the byte, without loading weights.",
    "doctor": "Check this installation and this machine, and say what to do.",
    "quantize": "Write a quantised checkpoint, or check one.",
    "router": "One address in front of any number of engines; it loses no stream.",
    "bench": "Measure kernels and models beside the machine's own limits.",
    "top": "Watch running servers in the terminal.",
    "eval": "Count the right answers of a server, or compare two servers item by item.",
    "deploy": "Plan, write, check, verify and diagnose vLLM-Ascend services.",
}
"""Each is a module of this package with a function `main(arguments) -> exit code`."""

SHELLS = ("bash", "zsh", "tcsh")

EXAMPLES = """Examples:
  qanat serve                                   the demo model on 127.0.0.1:8000
  qanat serve ./Qwen3.5-0.8B --port 8010
  qanat plan ./Qwen3.5-35B-A3B --max-model-len 32768
  qanat chat "What is 17 + 25?"
  qanat quantize ./Qwen3.5-0.8B ./Qwen3.5-0.8B-w8a8 --scheme w8a8
  qanat eval --tasks gsm8k_test.jsonl --baseline http://10.0.0.1:8000 --gate 0.5
  qanat top --base-url http://10.0.0.1:8000
  qanat router http://10.0.0.1:8000 http://10.0.0.2:8000 --policy prefix
  qanat deploy lint run_p.sh run_d.sh --image v0.18.0rc1-a3
  qanat --print-completion bash > ~/.local/share/bash-completion/completions/qanat

`qanat COMMAND --help` lists a command's flags."""

USAGE_ERROR = 2
"""Exit code where the command line, a variable or a settings file is at fault; 1 for every other failure."""


class CommandModule(Protocol):
    """A command's file."""

    def main(self, arguments: Sequence[str]) -> int:
        """Runs the command; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `qanat` with these arguments, those of the process unless given; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in COMMANDS:
        return run(words[0], words[1:])
    options = _parser().parse_args(words)
    if options.print_completion:
        _print_completion(options.print_completion)
        return 0
    _parser().print_help()
    return 0 if not words else USAGE_ERROR


def run(name: str, arguments: Sequence[str]) -> int:
    """Runs one command; an error that is meant for the user becomes one line and an exit code."""
    module = cast(CommandModule, importlib.import_module(f"qanat.cli.{name}"))
    try:
        return module.main(arguments)
    except QanatError as error:
        from qanat.cli.terminal import tell

        tell(f"qanat {name}: error: {error.message}")
        return exit_code_of(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        return 0


def exit_code_of(error: QanatError) -> int:
    """The exit code of a command that ends with this error."""
    return USAGE_ERROR if isinstance(error, ConfigError | CheckpointError) else 1


def _parser() -> argparse.ArgumentParser:
    from qanat import __version__

    parser = argparse.ArgumentParser(
        prog="qanat",
        description="Serves the Qwen3, Qwen3.5 and Qwen3.6 language models.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"qanat {__version__}")
    parser.add_argument(
        "--print-completion", choices=SHELLS, help="Write a completion script for this shell."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def _print_completion(shell: str) -> None:
    import shtab

    from qanat.cli.command import help_parser

    parser = argparse.ArgumentParser(prog="qanat")
    parser.add_argument("--version", action="store_true", help="Show the version.")
    parser.add_argument(
        "--print-completion", choices=SHELLS, help="Write a completion script for this shell."
    )
    commands = parser.add_subparsers()
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"qanat.cli.{name}")
        parser_of_command = commands.add_parser(name, help=summary, add_help=False)
        if hasattr(module, "fill_parser"):
            module.fill_parser(parser_of_command)
        else:
            help_parser(module.COMMAND, parser_of_command)
    sys.stdout.write(shtab.complete(parser, shell) + "\n")


if __name__ == "__main__":
    sys.exit(main())
