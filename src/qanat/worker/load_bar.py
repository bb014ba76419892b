"""A progress bar on the terminal while weights are loaded."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class LoadBar:
    """Shows how far a loader has come, on standard error and only on a terminal; it is gone at the end.

    Args:
        title: what is being done.
        is_shown: False shows nothing, where another process shows the same.
    """

    def __init__(self, title: str, *, is_shown: bool = True) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        is_disabled = not (is_shown and console.is_terminal)
        self._progress = Progress(*columns, console=console, transient=True, disable=is_disabled)
        self._task = self._progress.add_task(title, total=None)

    def update(self, done: int, total: int) -> None:
        """So many of so many parameters are there."""
        self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> LoadBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
