"""`qanat doctor`: whether this installation and this machine can serve, and what to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.cli.command import Command, help_parser, wants_help
from qanat.cli.doctor_checks.check import Check, State
from qanat.cli.terminal import echo
from qanat.config.command_line import Grammar, read_command_line
from qanat.config.disk_cache_options import DiskCacheOptions
from qanat.config.env import process_variables, read_environment
from qanat.config.options import option, options_of
from qanat.config.packed_cache import PackedCacheSettings, disk_cache_settings
from qanat.config.values import Kind
from qanat.config.wishes import Setting, merge, settings_of_flags, settings_of_variables
from qanat.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Doctor."""

    json: bool = option(Kind.SWITCH, False, "Write JSON.")
    clear_cache: bool = option(
        Kind.SWITCH,
        False,
        "Remove the packed weights that are kept on disk, say how much that freed, and end.",
    )
    verify_cache: bool = option(
        Kind.SWITCH,
        False,
        "Read all packed weights that are kept on disk, compare them with their checksums, set aside what is damaged, "
        "and end.",
    )


COMMAND = Command(
    name="doctor",
    summary="Check this installation and this machine, and say what to do.",
    description=(
        "Looks at Python, torch, the native kernels, the processor and its cores, memory, huge pages, the allocator,\n"
        "the demo model, folders and variables, and says what to do about each. Works without the engine, and says\n"
        "then how to install it. The exit code is 0 only if the engine can serve."
    ),
    examples=("qanat doctor", "qanat doctor --json", "qanat doctor --clear-cache"),
    groups=(DiskCacheOptions,),
    own=DoctorOptions,
    word="",
    word_help="",
    takes_file=False,
)

MARKS = {State.OK: "ok", State.NOTE: "note", State.WARNING: "warning", State.FAULT: "FAULT"}


def main(arguments: Sequence[str]) -> int:
    """Prints what was found; returns 0 only if the engine can serve.

    Raises:
        ConfigError: the command line is at fault.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    options, cache = read_options(arguments)
    if options.clear_cache or options.verify_cache:
        from qanat.cli.doctor_checks.cache_work import clear_cache, verify_cache

        return (clear_cache if options.clear_cache else verify_cache)(cache, is_json=options.json)
    checks = run_checks(cache)
    can_serve = all(check.state is not State.FAULT for check in checks)
    if options.json:
        echo(json.dumps({"can_serve": can_serve, "checks": [_as_json(check) for check in checks]}, indent=2))
    else:
        _print(checks, can_serve)
    return 0 if can_serve else 1


def read_options(arguments: Sequence[str]) -> tuple[DoctorOptions, PackedCacheSettings]:
    """The flags, and where the cache is by flags and variables.

    Other variables of the engine are subject of a check, so that a wrong one does not end the command.

    Raises:
        ConfigError: an unknown flag, a value that is none, or a word.
    """
    grammar = Grammar.of(COMMAND.options, with_known_flags=False)
    line = read_command_line(arguments, grammar)
    if line.words:
        raise ConfigError(f"qanat doctor takes flags only, got {' '.join(line.words)}.")
    known = {one.variable for one in options_of(DiskCacheOptions)}
    variables = {name: text for name, text in read_environment().flags.items() if name in known}
    settings, _ = merge([settings_of_flags(line.written, grammar.kinds)[0], settings_of_variables(variables)])
    for one in COMMAND.options:
        if setting := settings.get(one.flag.removeprefix("--")):
            one.check(setting.value, setting.origin)
    own, cache = (_instance(group, settings) for group in (DoctorOptions, DiskCacheOptions))
    if own.clear_cache and own.verify_cache:
        raise ConfigError(
            "--clear-cache removes what --verify-cache reads; leave one out.", param="--clear-cache"
        )
    return own, disk_cache_settings(cache)


def _instance(group: type, settings: Mapping[str, Setting]) -> Any:
    names = {one.flag.removeprefix("--"): one.name for one in options_of(group)}
    return group(**{own: settings[name].value for name, own in names.items() if name in settings})


def run_checks(cache: PackedCacheSettings) -> list[Check]:
    """Everything that is looked at."""
    from qanat.cli.doctor_checks.cache_work import check_cache
    from qanat.cli.doctor_checks.installation import check_installation
    from qanat.cli.doctor_checks.machine import check_machine
    from qanat.cli.doctor_checks.settings import check_settings

    return [
        *check_installation(),
        *check_machine(process_variables()),
        check_cache(cache),
        *check_settings(read_environment()),
    ]


def _as_json(check: Check) -> dict[str, object]:
    return {**dataclasses.asdict(check), "state": check.state.value}


def _print(checks: Sequence[Check], can_serve: bool) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        echo(f"{MARKS[check.state]:8} {check.name.ljust(width)}  {check.message}")
        for line in check.more:
            echo(f"{'':8} {'':{width}}    {line}")
        if check.advice:
            echo(f"{'':8} {'':{width}}  -> {check.advice}")
    rest = _count(checks, State.WARNING, "warning")
    if can_serve:
        echo(f"\nThe engine can serve ({rest}).")
    else:
        echo(f"\nThe engine cannot serve: {_count(checks, State.FAULT, 'fault')} above ({rest}).")


def _count(checks: Sequence[Check], state: State, name: str) -> str:
    number = sum(check.state is state for check in checks)
    return f"{number} {name}" + ("" if number == 1 else "s")
