"""What the commands write to the terminal: results to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from qanat.core.printable import printable

if TYPE_CHECKING:
    from qanat.config.prepare import Prepared

MAX_SHOWN_CHARS = 72
"""Longer values are cut in the middle."""

ENGINE_MODULES = ("torch", "tokenizers", "zmq", "starlette", "uvicorn", "jinja2")
"""Of these, one that is missing says that only the base is installed."""


def echo(text: str = "") -> None:
    """One line, or several, of the result."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """One line for the person at the terminal that is no part of the result; what would steer it is escaped.

    Where it cannot be written, as on a full disk, the command goes on without it.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()


def show(value: object) -> str:
    """A value as a user would write it, cut if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    half = (MAX_SHOWN_CHARS - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def decision_lines(decisions: Iterable[Decision]) -> Iterator[str]:
    """One line for each decision; those with the same outcome and reason share the first one's."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in decisions:
        name = each.field if each.wanted is None else f"{each.field} {show(each.wanted)}"
        groups.setdefault((show(each.got), each.why), []).append(name)
    for (got, why), names in groups.items():
        yield f"{', '.join(names)} -> {got}: {why}"


def require_engine(command: str) -> None:
    """Refuses a command that needs the engine where only the base is installed.

    Raises:
        ConfigError: naming what to install.
    """
    missing = [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"qanat {command} needs {', '.join(missing)}, which the base does not bring: pip install 'qanat[engine]'"
        )


def check_template(prepared: Prepared) -> None:
    """Refuses template settings that cannot work, before a model is loaded for them.

    Raises:
        ConfigError: the template cannot be read or does not compile, or a default variable is not allowed.
    """
    from qanat.server.renderer import check_chat_options

    check_chat_options(prepared.wishes.chat_template, prepared.wishes.default_chat_template_kwargs)
