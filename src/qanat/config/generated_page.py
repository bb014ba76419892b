"""The command behind each generated page of the documentation: write it, or check that it is current."""

from __future__ import annotations

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
        usage: shown where the arguments are wrong.

    Returns:
        The exit code: 0 if the page is current now, 1 if it is not, 2 for wrong arguments.
    """
    is_checking = "--check" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--check"]
    if len(paths) != 1:
        sys.stderr.write(usage or "")
        return 2
    (path,) = paths
    page = render()
    if not is_checking:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write(f"{path} is not current; run: {command}\n")
    return 1
