"""The variables of env.sh, the one file of a rendered folder that a person edits: names, and how values are read."""

from __future__ import annotations

import re

from qanat.core.errors import ConfigError
from qanat.deploy.plan.model import Node

ENV_FILE = "env.sh"
MODEL_PATH = "MODEL_PATH"
DRAFT_PATH = "DRAFT_MODEL_PATH"
CACHE_DIR = "CACHE_DIR"
LOG_DIR = "LOG_DIR"
INSTALL_DIR = "INSTALL_DIR"
READY_TIMEOUT = "READY_TIMEOUT_S"
ASSIGNMENT = re.compile(r"^(?:export[ \t]+)?([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
"""A variable of env.sh, and all that stands behind its equals sign."""
_PIECE = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\;]+)""", re.DOTALL)
_ESCAPE = re.compile(r"""\\([\\"$`])""")
_EXPANDED = re.compile(r"(?<!\\)(?:\\\\)*[$`]")


def address_variable(node: Node) -> str:
    """The variable of env.sh that holds a node's IP address, such as ADDRESS_PREFILL_0."""
    return f"ADDRESS_{variable_part(node)}"


def interface_variable(node: Node) -> str:
    """The variable of env.sh that holds a node's network interface, such as INTERFACE_PREFILL_0."""
    return f"INTERFACE_{variable_part(node)}"


def variable_part(node: Node) -> str:
    """A node's name as a part of the name of a variable, such as PREFILL_0."""
    return re.sub(r"[^A-Z0-9]+", "_", node.name.upper())


def read_values(text: str) -> dict[str, str]:
    """The variables that an env.sh sets to a plain text; those whose value other variables decide are left out.

    Raises:
        ConfigError: a value has a quote that does not end; names the variable.
    """
    found: dict[str, str] = {}
    for name, value in ASSIGNMENT.findall(text):
        try:
            plain = _plain_word(value)
        except ValueError:
            raise ConfigError(f"{ENV_FILE}: the value of {name} has a quote that does not end.") from None
        if plain is not None:
            found[name] = plain
    return found


def _plain_word(code: str) -> str | None:
    """What the first word of a piece of bash stands for; None if a variable or a command decides it.

    Raises:
        ValueError: a quote does not end.
    """
    found, at = "", 0
    while at < len(code) and code[at] not in " \t;":
        part = _PIECE.match(code, at)
        if part is None:
            raise ValueError(code)
        single, double, escaped, bare = part.groups()
        if any(piece is not None and _EXPANDED.search(piece) for piece in (double, bare)):
            return None
        if double is not None:
            double = _ESCAPE.sub(r"\1", double)
        found += next(piece for piece in (single, double, escaped, bare) if piece is not None)
        at = part.end()
    return found
