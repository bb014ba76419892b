"""Plots as SVG text: frames, scales, lines, intervals and bars. Colours are classes, which the page defines."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 680, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
MAX_MARKED = 40
"""Lines of more points are drawn without marks."""
NUM_COLOURS = 6
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Point = tuple[float, float]


def text_of(value: object) -> str:
    """A value as text of HTML and of XML: escaped, and without characters that XML does not have."""
    return html.escape(_NOT_XML.sub("\ufffd", str(value)))


@dataclass(frozen=True)
class Scale:
    """Places finite values between two pixels; what lies outside is put on the border.

    Attributes:
        low: value at `start_px`.
        high: value at `end_px`; not below `low`.
    """

    low: float
    high: float
    start_px: float
    end_px: float

    @classmethod
    def of(cls, values: Iterable[float], start_px: float, end_px: float, *, has_zero: bool = True) -> Scale:
        """One that all values have a place on, from 0 to 1 where there are none."""
        found = [value for value in values if math.isfinite(value)]
        if has_zero:
            found.append(0.0)
        if not found:
            return cls(0.0, 1.0, start_px, end_px)
        low, high = min(found), max(found)
        if low == high == 0.0:
            high = 1.0
        return cls(low, high, start_px, end_px)

    def __call__(self, value: float) -> float:
        """The place of a value in pixels; halves are subtracted, as the span of huge values is not finite."""
        half_span = self.high / 2 - self.low / 2
        share = (value / 2 - self.low / 2) / half_span if half_span > 0 else 0.5
        return self.start_px + (self.end_px - self.start_px) * min(max(share, 0.0), 1.0)

    def ticks(self, wanted: int = 6) -> list[float]:
        """Round values on it, about as many as wanted; its ends where there are none."""
        span = self.high - self.low
        if not math.isfinite(span) or span <= 1e-300 or span <= 1e-9 * max(abs(self.low), abs(self.high)):
            return sorted({self.low, self.high})
        power = 10.0 ** math.floor(math.log10(span / wanted))
        step = next(
            power * factor for factor in (1.0, 2.0, 5.0, 10.0) if span / (power * factor) <= wanted + 0.5
        )
        first = math.ceil(self.low / step - 1e-9)
        found = [(first + number) * step for number in range(2 * wanted)]
        return [value for value in found if self.low <= value <= self.high] or [self.low, self.high]


@dataclass(frozen=True)
class Series:
    """One line of a plot.

    Attributes:
        name: in the legend.
        points: in the order in which they are joined.
        intervals: lowest and highest value of each point; empty without.
    """

    name: str
    points: Sequence[Point]
    intervals: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True)
class Bar:
    """Part of a row from one value to another; `kind` is its class."""

    start: float
    end: float
    kind: str


def line_plot(title: str, x_title: str, y_title: str, lines: Sequence[Series]) -> str:
    """Lines over two axes that have 0 on them; points that are not finite are left out."""
    shown = [_finite(line) for line in lines]
    points = [point for line in shown for point in line.points]
    ends = [end for line in shown for interval in line.intervals if interval is not None for end in interval]
    x = Scale.of((point[0] for point in points), LEFT, WIDTH - RIGHT)
    y = Scale.of([*(point[1] for point in points), *ends], HEIGHT - BOTTOM, TOP)
    parts = [_axes(x, y, x_title, y_title), _legend([line.name for line in lines])]
    for number, line in enumerate(shown):
        parts.append(_line(line, x, y, number % NUM_COLOURS))
    if not points:
        parts.append(_note("no values"))
    return _svg(title, HEIGHT, parts)


def _finite(line: Series) -> Series:
    intervals = line.intervals or [None] * len(line.points)
    kept = [
        (point, interval if interval is not None and all(map(math.isfinite, interval)) else None)
        for point, interval in zip(line.points, intervals, strict=True)
        if all(map(math.isfinite, point))
    ]
    return Series(line.name, [point for point, _ in kept], [interval for _, interval in kept])


def _line(line: Series, x: Scale, y: Scale, colour: int) -> str:
    places = [(x(value), y(height)) for value, height in line.points]
    joined = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
    parts = [f'<polyline class="line c{colour}" points="{joined}"/>'] if len(places) > 1 else []
    if len(places) <= MAX_MARKED:
        parts += [f'<circle class="mark c{colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in places]
    for (left, _), interval in zip(places, line.intervals, strict=True):
        if interval is not None:
            parts.append(_segment(left, y(interval[0]), left, y(interval[1]), f"line c{colour}"))
    return "".join(parts)


def bar_plot(
    title: str, x_title: str, rows: Sequence[Sequence[Bar]], kinds: Sequence[tuple[str, str]]
) -> str:
    """A row of bars for each member of `rows`, the first on top.

    Args:
        title: what it shows.
        x_title: of the axis.
        rows: bars with finite ends.
        kinds: class and name of each kind, for the legend.
    """
    row_px = min(14.0, max(2.0, 320 / max(len(rows), 1)))
    bottom = TOP + row_px * max(len(rows), 4)
    x = Scale.of((end for row in rows for bar in row for end in (bar.start, bar.end)), LEFT, WIDTH - RIGHT)
    y = Scale(0.0, 1.0, bottom, TOP)
    parts = [_axes(x, y, x_title, "", has_y_ticks=False), _legend([name for _, name in kinds], kinds)]
    for number, row in enumerate(rows):
        top = TOP + number * row_px
        for bar in row:
            left, right = sorted((x(bar.start), x(bar.end)))
            parts.append(
                f'<rect class="bar {text_of(bar.kind)}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{right - left:.1f}" height="{max(row_px - 0.5, 1.0):.1f}"/>'
            )
    if not rows:
        parts.append(_note("no requests"))
    return _svg(title, bottom + BOTTOM, parts)


def interval_plot(title: str, x_title: str, rows: Sequence[tuple[str, float, float, float]]) -> str:
    """A point with its interval for each row of (name, low, middle, high), all finite, and a line at 0."""
    label_px, row_px = 170, 24
    bottom = TOP + row_px * max(len(rows), 1)
    x = Scale.of((value for row in rows for value in row[1:]), label_px, WIDTH - RIGHT)
    parts = [_axes(x, Scale(0.0, 1.0, bottom, TOP), x_title, "", has_y_ticks=False)]
    parts.append(_segment(x(0.0), TOP, x(0.0), bottom, "zero"))
    for number, (name, low, middle, high) in enumerate(rows):
        y = TOP + row_px * (number + 0.5)
        parts.append(f'<text x="{label_px - 8}" y="{y + 4:.1f}" text-anchor="end">{text_of(name)}</text>')
        parts.append(_segment(x(low), y, x(high), y, "line c0"))
        parts.append(f'<circle class="mark c0" cx="{x(middle):.1f}" cy="{y:.1f}" r="4"/>')
    return _svg(title, bottom + BOTTOM, parts)


def _axes(x: Scale, y: Scale, x_title: str, y_title: str, *, has_y_ticks: bool = True) -> str:
    bottom, left = y.start_px, x.start_px
    parts = [_segment(left, bottom, x.end_px, bottom, "axis"), _segment(left, bottom, left, y.end_px, "axis")]
    for value in x.ticks():
        parts.append(_segment(x(value), bottom, x(value), bottom + 4, "axis"))
        parts.append(
            f'<text x="{x(value):.1f}" y="{bottom + 17:.1f}" text-anchor="middle">{value:.4g}</text>'
        )
    for value in y.ticks(5) if has_y_ticks else ():
        parts.append(_segment(left, y(value), x.end_px, y(value), "grid"))
        parts.append(f'<text x="{left - 6:.1f}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    middle = (x.start_px + x.end_px) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{bottom + 35:.1f}" text-anchor="middle">{text_of(x_title)}</text>'
    )
    if y_title:
        up = (y.start_px + y.end_px) / 2
        parts.append(
            f'<text x="14" y="{up:.1f}" text-anchor="middle" transform="rotate(-90 14 {up:.1f})">'
            f"{text_of(y_title)}</text>"
        )
    return "".join(parts)


def _legend(names: Sequence[str], kinds: Sequence[tuple[str, str]] = ()) -> str:
    parts, left = [], float(LEFT)
    for number, name in enumerate(names):
        kind = kinds[number][0] if kinds else f"c{number % NUM_COLOURS}"
        parts.append(f'<rect class="bar {kind}" x="{left:.1f}" y="10" width="12" height="10"/>')
        parts.append(f'<text x="{left + 17:.1f}" y="19">{text_of(name)}</text>')
        left += 17 + 7 * len(name) + 14
    return "".join(parts)


def _note(text: str) -> str:
    return f'<text x="{WIDTH / 2:.1f}" y="{TOP + 30}" text-anchor="middle">{text_of(text)}</text>'


def _segment(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{text_of(title)}"><title>{text_of(title)}</title>{"".join(parts)}</svg>'
    )
