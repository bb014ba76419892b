"""`qanat router`: one address in front of any number of engines."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qanat.cli.command import Command, help_parser, read_yaml, wants_help
from qanat.cli.terminal import tell
from qanat.config.command_line import Grammar, read_command_line
from qanat.config.flag_names import field_of
from qanat.config.known_flags import did_you_mean
from qanat.config.options import Option, options_of
from qanat.config.values import Kind, read_value
from qanat.config.wishes import Setting, merge, settings_of_flags
from qanat.core.errors import ConfigError
from qanat.router.options import GROUPS, RouterOptions

if TYPE_CHECKING:
    from qanat.router.config import RouterConfig

REPEATED = (
    "endpoint",
    "endpoints-dns",
    "prefiller-hosts",
    "prefiller-ports",
    "decoder-hosts",
    "decoder-ports",
)
"""Flags whose uses add up."""
FOREIGN = {
    "retry-delay": "retries wait as they need to",
    "max-waiting-retries": "an engine that is not there yet is looked at until it is",
    "waiting-retry-interval": "see --health-interval-s",
    "workers": "one process serves as much as several of the proxy's",
    "log-level": "the log says what has changed and why",
}
"""Of vllm-ascend's example proxies: taken and without effect."""
LIST_KEY = "endpoints"


COMMAND = Command(
    name="router",
    summary="One address in front of any number of engines; it loses no stream.",
    description=(
        "Stands in front of engines of the OpenAI API (Qanat, vLLM, vLLM-Ascend) and gives each request to the one\n"
        "that suits it best. Watches whether engines make progress, takes out those that do not, tries again\n"
        "elsewhere, and goes on with streams whose engine died. Prefill and decode engines are paired with the flags\n"
        "of vllm-ascend's example proxies. Needs neither torch nor a card.\n\n"
        "GET /health, /ready, /live, /metrics; /router/endpoints with the admin key."
    ),
    examples=(
        "qanat router http://10.0.0.1:8000 http://10.0.0.2:8000 --policy prefix",
        "qanat router --endpoint http://10.0.0.1:8000,weight=2 --endpoint http://10.0.0.2:8000 --port 9000",
        "qanat router --prefiller-hosts 10.0.0.1 --prefiller-ports 8100 --decoder-hosts 10.0.0.2 10.0.0.3 "
        "--decoder-ports 8200",
        "qanat router --config router.yaml --admin-key-env ADMIN_KEY",
    ),
    groups=GROUPS[1:],
    own=GROUPS[0],
    word="URL",
    word_help="URLs of engines; the same as --endpoint.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat router`; returns the exit code.

    Raises:
        ConfigError: a flag, the settings file or an endpoint is wrong, or the router cannot start.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    config = read_config(arguments)
    from qanat.core.log_lines import write_log
    from qanat.router.run import serve

    write_log("text", logging.INFO)
    return serve(config, tell)


def read_config(arguments: Sequence[str]) -> RouterConfig:
    """The settings of this command line and of the file that it names.

    Raises:
        ConfigError: as `main`.
    """
    from qanat.config.env import secret_of
    from qanat.router.config import make_config

    known = _known()
    kinds = {name: one.kind for name, one in known.items()} | dict.fromkeys(FOREIGN, Kind.TEXT)
    grammar = Grammar(kinds, {alias: name for name, one in known.items() for alias in one.aliases})
    line = read_command_line(arguments, grammar)
    repeated: dict[str, tuple[str, ...]] = {}
    for use in line.written:
        if use.name in REPEATED:
            repeated[use.name] = repeated.get(use.name, ()) + use.texts
        elif use.name in FOREIGN:
            tell(f"{use.spelling} has no effect: {FOREIGN[use.name]}")
    others = [use for use in line.written if use.name not in REPEATED and use.name not in FOREIGN]
    flags, notes = settings_of_flags(others, kinds)
    flags += [Setting(name, texts, f"--{name}") for name, texts in repeated.items()]
    path = next((setting.value for setting in flags if setting.name == "config"), None)
    in_file, listed = _of_file(str(path), known) if path else ([], [])
    settings, more_notes = merge([flags, in_file])
    for note in (*line.notes, *notes, *more_notes):
        tell(f"{note.field}: {note.why}")
    for name, setting in settings.items():
        known[name].check(setting.value, setting.origin)
    values: dict[str, Any] = {field_of(name): setting.value for name, setting in settings.items()}
    return make_config(RouterOptions(**values), line.words, listed, secret_of)


def _known() -> dict[str, Option]:
    return {one.flag.removeprefix("--"): one for group in GROUPS for one in options_of(group)}


def _of_file(path: str, known: Mapping[str, Option]) -> tuple[list[Setting], list[Any]]:
    """Settings and endpoints of a YAML file."""
    settings: list[Setting] = []
    listed: list[Any] = []
    for key, value in read_yaml(path).items():
        name = key.replace("_", "-").lstrip("-")
        origin = f"{path}: {key}"
        if name == LIST_KEY:
            if not isinstance(value, list):
                raise ConfigError(f"{origin}: must be a list of endpoints.", param=origin)
            listed = value
        elif name not in known:
            raise ConfigError(
                f"{origin}: unknown setting{did_you_mean(name, [*known, LIST_KEY])}", param=origin
            )
        elif value is not None:
            kind = known[name].kind
            if kind is Kind.TEXTS and isinstance(value, list):
                value = [str(one) for one in value]
            settings.append(Setting(name, read_value(kind, value, origin), origin))
    return settings, listed
