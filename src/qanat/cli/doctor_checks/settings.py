"""What the variables of this shell would do to a start."""

from __future__ import annotations

import locale
from collections.abc import Iterator

from qanat.cli.doctor_checks.check import Check, State
from qanat.cli.terminal import decision_lines
from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.config.honour import honour
from qanat.config.wishes import build, merge, settings_of_variables
from qanat.core.errors import ConfigError

FILE_VARIABLES = ("QANAT_CONFIG",)
"""Flags of the command line itself, not of the engine."""


def check_settings(environment: Environment) -> Iterator[Check]:
    """The variables that set something, and those that mean nothing here.

    Args:
        environment: as `qanat serve` would read it.
    """
    flags = {name: text for name, text in environment.flags.items() if name not in FILE_VARIABLES}
    try:
        settings, _ = merge([settings_of_variables(flags)])
        wishes: EngineConfig = build(settings)
        _, filled = honour(wishes, environment)
    except ConfigError as error:
        advice = "correct or unset it: serve refuses to start with it"
        more = tuple(decision_lines(environment.decisions))
        yield Check("variables", State.FAULT, error.message, advice, more, {"flags": sorted(flags)})
        return
    said = [*filled, *environment.decisions]
    names = sorted([*flags, *environment.honoured])
    facts = {
        "flags": sorted(flags),
        "honoured": sorted(environment.honoured),
        "decisions": [{"field": each.field, "got": each.got, "why": each.why} for each in said],
    }
    message = f"set something: {', '.join(names) or 'none'}; named at every start: {len(said) or 'none'}"
    yield Check("variables", State.OK, message, more=tuple(decision_lines(said)), facts=facts)
    yield check_encoding()


def check_encoding() -> Check:
    """Prompts and answers are UTF-8, and so should the terminal be."""
    encoding = locale.getpreferredencoding(False)
    facts = {"encoding": encoding}
    if encoding.lower().replace("-", "") != "utf8":
        advice = "set LC_ALL=C.UTF-8; the server itself always speaks UTF-8"
        return Check("text encoding", State.WARNING, f"this terminal's is {encoding}", advice, facts=facts)
    return Check("text encoding", State.OK, encoding, facts=facts)
