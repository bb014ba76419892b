"""The view of a running benchmark in the terminal, drawn by a process of its own.

The client must not be late because of it: it writes one line of numbers twice a second into a pipe that never makes
it wait (what does not fit is dropped), and the other process, of a lower priority, lays out and draws.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qanat.bench.client.load import Load

NICENESS = 5
END_TIMEOUT_S = 5.0


class LineSender:
    """Writes lines into a pipe without ever waiting for its reader.

    Args:
        pipe: its writing end, which is set to not block.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)
        self._is_open = True

    def send(self, figures: dict[str, Any]) -> None:
        """Sends a line; drops it where the reader is behind, and all of them where it is gone."""
        if not self._is_open:
            return
        try:
            # Shorter than PIPE_BUF (4096 bytes), so it is written whole or not at all.
            os.write(self._pipe, json.dumps(figures).encode() + b"\n")
        except BlockingIOError:
            return
        except OSError:
            self._is_open = False


@contextlib.contextmanager
def live_view() -> Iterator[Callable[[Load, int, float | None], None]]:
    """Draws on standard error until the context ends; gives what is to be called now and then during the run."""
    from qanat.bench.online.glance import Glance

    # -P: what lies in the current folder must not be taken for the package.
    command = [sys.executable, "-P", "-m", "qanat.cli.bench_actions.live_view"]
    window = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert window.stdin is not None
    glance, sender = Glance(), LineSender(window.stdin.fileno())
    try:
        yield lambda load, total, rate: sender.send(glance.look(load, total, rate))
    finally:
        with contextlib.suppress(OSError):
            window.stdin.close()
        try:
            window.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            window.kill()
            window.wait()


def view_of(figures: dict[str, Any]) -> Any:
    """What is drawn: a bar, and a table of the figures."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for title, value in rows_of(figures):
        table.add_row(title, value)
    view = Table.grid()
    view.add_row(ProgressBar(total=max(figures["planned"], 1), completed=figures["done"], width=60))
    view.add_row(table)
    return view


def rows_of(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Titles and values."""
    counts = ", ".join(f"{figures[name]} {name}" for name in ("sent", "running", "done", "errors"))
    rates = []
    for name, title in (("tokens_per_s", "tokens/s (server)"), ("pieces_per_s", "chunks/s")):
        if figures[name] is not None:
            rates.append(f"{figures[name]:.1f} {title}")
    rows = [("requests", f"{counts} of {figures['planned']}"), ("time", f"{figures['passed_s']:.1f} s")]
    rows.append(("output", ", ".join(rates) or "-"))
    for name, title in (("ttft_ms", "TTFT, about"), ("itl_ms", "ITL, about")):
        values = figures[name]
        shown = "-" if values is None else "p50 {:.1f}, p90 {:.1f}, p99 {:.1f} ms".format(*values)
        rows.append((title, shown))
    return rows


def draw() -> None:
    """The other process: draws what comes until there is no more."""
    import signal

    from rich.console import Console
    from rich.live import Live

    # Ctrl-C ends the run, and the run's end ends the view.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        for line in sys.stdin:
            live.update(view_of(json.loads(line)), refresh=True)


if __name__ == "__main__":
    draw()
