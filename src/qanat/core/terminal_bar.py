"""A progress bar on standard error, for what takes its time."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


class TerminalBar:
    """Is shown on a terminal only, and gone at the end; use as a context manager.

    Args:
        title: what is being done.
        amount: how the amounts are written.
        is_shown: False shows nothing.
    """

    def __init__(self, title: str, amount: ProgressColumn, *, is_shown: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        console = Console(stderr=True)
        is_disabled = not (is_shown and console.is_terminal)
        self._progress = Progress(*columns, console=console, transient=True, disable=is_disabled)
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
