"""What `qanat quantize` shows: a progress bar while it works, and the errors at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import DownloadColumn
from rich.table import Table

from qanat.core.terminal_bar import TerminalBar

if TYPE_CHECKING:
    from qanat.conversion.error_report import ErrorGroup

_PLACES = (("layer", re.compile(r"\.layers\.(\d+)\.")), ("expert", re.compile(r"\.experts\.(\d+)\.")))


class QuantizeBar(TerminalBar):
    """Bytes of the source that have been dealt with.

    Args:
        is_shown: False shows nothing.
    """

    def __init__(self, *, is_shown: bool = True) -> None:
        super().__init__("weights", DownloadColumn(True), is_shown=is_shown)

    def start(self, total: int, done: int) -> None:
        """There are so many bytes, and so many of them are done already."""
        self._progress.update(self._task, description="weights", total=total, completed=done)

    def check(self, total: int) -> None:
        """So many bytes of finished files are there, and are read."""
        self._progress.update(self._task, description="checking files", total=total, completed=0)

    def advance(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        self._progress.update(self._task, advance=size_bytes)


def error_table(groups: Sequence[ErrorGroup]) -> Table:
    """The errors of each part of the model, in percent."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("part")
    table.add_column("kind")
    for title in ("matrices", "weights off", "outputs off", "worst"):
        table.add_column(title, justify="right")
    table.add_column("worst in")
    for group in groups:
        table.add_row(
            group.part,
            group.kind,
            str(group.num_matrices),
            f"{group.weight_error:.2%}",
            f"{group.output_error:.2%}",
            f"{group.worst_output_error:.2%}",
            place_of(group.worst_matrix),
        )
    return table


def place_of(matrix: str) -> str:
    """Layer and expert of a matrix, as far as it has them."""
    found = [f"{word} {match[1]}" for word, pattern in _PLACES if (match := pattern.search(matrix))]
    return ", ".join(found)
