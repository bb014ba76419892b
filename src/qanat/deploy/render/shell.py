"""Text for bash: values quoted so that they arrive unchanged, comments that stay comments, scripts put together."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources

from qanat.core.errors import ConfigError
from qanat.deploy.render.model import Variable, Word

_BARE = re.compile(r"[A-Za-z0-9_./:,@%+-]+", re.ASCII)
_EXPANDED = re.compile(r"[$`]")
_ESCAPED = re.compile(r"[\\$`\"]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")


def quote(text: str) -> str:
    """A word of bash that stands for exactly this text, in quotes unless nothing in it is special.

    Quotes are single ones, in which all is text. What looks like a variable stands in double ones, escaped, because
    checkers of scripts suspect a mistake otherwise.

    Raises:
        ConfigError: no program can be given such a text: it holds a NUL, or is no valid Unicode.
    """
    if "\0" in text:
        raise ConfigError(f"{text!r} holds a NUL character, which no command line can; take it out.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{text!r} is no valid Unicode text; write it anew.") from None
    if _BARE.fullmatch(text):
        return text
    # bash doubles a \x01 that stands in double quotes inside of an array.
    if _EXPANDED.search(text) and not _CONTROL.search(text):
        return '"' + _ESCAPED.sub(r"\\\g<0>", text) + '"'
    return "'" + text.replace("'", "'\\''") + "'"


def word(value: Word) -> str:
    """A word of bash for a text, or for what a variable of env.sh holds."""
    return f'"${value.name}"' if isinstance(value, Variable) else quote(value)


def comment(text: str, indent: str = "") -> str:
    """Comment lines; line ends and control characters of the text cannot end the comment."""
    lines = [_CONTROL.sub(" ", line).strip() for line in text.splitlines()] or [""]
    return "\n".join(f"{indent}# {line}".rstrip() for line in lines)


def assignments(values: Mapping[str, Word]) -> str:
    """One `readonly name=value` a line."""
    return "\n".join(f"readonly {name}={word(value)}" for name, value in values.items())


def array(name: str, values: Sequence[Word]) -> str:
    """A read-only array with a value a line."""
    if not values:
        return f"readonly -a {name}=()"
    inner = "\n".join(f"  {word(value)}" for value in values)
    return f"readonly -a {name}=(\n{inner}\n)"


def command(pieces: Sequence[str]) -> str:
    """One command with a line for each of its pieces, which are quoted already."""
    return " \\\n  ".join(pieces)


def script(title: str, parts: Sequence[str]) -> str:
    """A whole script: it stops at the first error, and pieces are set apart by empty lines.

    Args:
        title: what it does, as a comment at its head.
        parts: pieces of bash; empty ones are left out.
    """
    head = f"#!/usr/bin/env bash\n{comment(title)}\nset -euo pipefail"
    return "\n\n".join([head, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


@functools.cache
def body(name: str) -> str:
    """A piece of bash that is the same in every deployment, from a file of `bodies/`."""
    return resources.files("qanat.deploy.render").joinpath("bodies", name).read_text(encoding="utf-8")


def source_environment(depth: int) -> str:
    """Finds the folder of the deployment from the script's own place and reads env.sh.

    Args:
        depth: folders between the script and the deployment's.
    """
    return f'{find_folder(depth)}\n# shellcheck source=/dev/null\nsource "$DEPLOYMENT_DIR/env.sh"'


def find_folder(depth: int) -> str:
    """Finds the folder of the deployment from the script's own place, which is `depth` folders below."""
    up = "/.." * depth
    return (
        'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"\n'
        f'DEPLOYMENT_DIR="$(cd -- "$here{up}" && pwd -P)"'
    )
