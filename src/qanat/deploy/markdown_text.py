"""Markdown whose values stay what they are: escaped text, code, tables, commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")


def escaped(text: str) -> str:
    """A text on one line in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", _one_line(text))


def plain(text: str) -> str:
    """A text, also of several lines, in which nothing that stands in the knowledge base is markup."""
    for mark in "\\<>*_`[]":
        text = text.replace(mark, f"\\{mark}")
    return text


def code(text: str) -> str:
    """A text as code; inside of tables a bar in it needs `cell`."""
    line = _one_line(text)
    if not line:
        return ""
    fence = "`" * (1 + _longest_run(line))
    is_padded = line.startswith("`") or line.endswith("`")
    return f"{fence} {line} {fence}" if is_padded else f"{fence}{line}{fence}"


def cell(markup: str) -> str:
    """Markup that stays inside of its cell: bars are escaped once, in code as well."""
    return re.sub(r"(?<!\\)\|", r"\\|", markup)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are markup."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(one) for one in line) + " |" for line in lines)


def commands(lines: Sequence[str], indent: str = "") -> str:
    """Commands of bash, each as it is."""
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + _longest_run(text))
    return "\n".join(indent + line for line in (f"{fence}bash", *text.splitlines(), fence))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
