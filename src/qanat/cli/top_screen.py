"""What `qanat top` shows on a terminal: a panel for each server, with the course of its tokens per second."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from qanat.cli.top_text import TITLE_WIDTH, figure_lines, plan_lines
from qanat.core.printable import printable

if TYPE_CHECKING:
    from qanat.bench.live.watch import View

BARS = "▁▂▃▄▅▆▇█"
NUM_POINTS = 60


class Screen:
    """Draws views; remembers the rates of each server."""

    def __init__(self) -> None:
        self._rates: dict[str, deque[float]] = {}

    def waiting(self) -> RenderableType:
        """Before the first reading."""
        return Text("reading /metrics ...", style="dim")

    def draw(self, views: Sequence[View]) -> RenderableType:
        """A panel for each server; decisions only where there is one server, for lack of room."""
        panels = [self._panel(view, has_decisions=len(views) == 1) for view in views]
        return Group(*panels, Text("Ctrl-C ends", style="dim"))

    def _panel(self, view: View, *, has_decisions: bool) -> Panel:
        title, *lines = figure_lines(view)
        text = Text(no_wrap=True, overflow="ellipsis")
        if view.figures is None:
            self._rates.pop(view.server, None)
            return Panel(Text(printable(view.failure)), title=_title(view.server), border_style="red")
        rates = self._rates.setdefault(view.server, deque(maxlen=NUM_POINTS))
        rate = view.figures["generation_tokens_per_s"]
        if rate is not None:
            rates.append(rate)
        for line in lines:
            text.append(printable(line[:TITLE_WIDTH]), style="bold cyan")
            text.append(printable(line[TITLE_WIDTH:]) + "\n")
            if line.startswith("tokens/s"):
                text.append(" " * TITLE_WIDTH + spark(rates) + "\n", style="green")
        if has_decisions:
            text.append(printable("\n".join(plan_lines(view))), style="dim")
        text.rstrip()
        return Panel(text, title=_title(title), title_align="left", border_style="blue")


def spark(values: Sequence[float]) -> str:
    """A bar for each value, the largest as high as a line."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[min(len(BARS) - 1, int(len(BARS) * value / highest))] for value in values)


def _title(text: str) -> Text:
    return Text(printable(text), style="bold")
