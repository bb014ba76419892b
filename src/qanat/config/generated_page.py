"""The command behind each generated page of the documentation: write it, or check that it is current."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def write_or_check(
    arguments: Sequence[str], render: Callable[[], str], command: str, usage: str | None
) -> int:
    """Writes a page, or with --check compares it.

    Args:
        arguments: the page's path, and --check or not.
        render: makes the page.
        command: what brings the page up to date, for the message.
        usage: shown as help.

    Returns:
        The exit code: 0 if the page is current now or help was asked for, 1 if it is not, 2 for wrong arguments.
    """
    try:
        wanted = _parser(command, usage).parse_args(arguments)
    except SystemExit as ended:  # help was shown, or what is wrong
        return 0 if ended.code in (None, 0) else 2
    path: Path = wanted.page
    page = render()
    if not wanted.check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write(f"{path} is not current; run: {command}\n")
    return 1


def _parser(command: str, usage: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command.rpartition(" ")[0],
        description=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--check", action="store_true", help="write nothing: say whether the page is current")
    parser.add_argument("page", type=Path, help="path of the page")
    return parser
