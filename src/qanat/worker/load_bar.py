"""A progress bar on the terminal while weights are loaded."""

from __future__ import annotations

from rich.progress import MofNCompleteColumn

from qanat.core.terminal_bar import TerminalBar


class LoadBar(TerminalBar):
    """Shows how far a loader has come.

    Args:
        title: what is being done.
        is_shown: False shows nothing, where another process shows the same.
    """

    def __init__(self, title: str, *, is_shown: bool = True) -> None:
        super().__init__(title, MofNCompleteColumn(), is_shown=is_shown)

    def update(self, done: int, total: int) -> None:
        """So many of so many parameters are there."""
        self._progress.update(self._task, completed=done, total=total)
