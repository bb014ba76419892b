"""Plots are valid XML with every point inside of the frame, whatever finite values they get."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.report.svg import (
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Bar,
    Scale,
    Series,
    bar_plot,
    interval_plot,
    line_plot,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
POINTS = st.lists(st.tuples(FINITE, FINITE), max_size=50)
NAMES = st.text(max_size=12)


def placed(svg: str, *, left: float = LEFT) -> list[tuple[float, float]]:
    """All points of lines, marks and bars; fails unless the text is XML whose numbers are all finite."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    found = []
    for element in root.iter():
        kind = element.tag.rpartition("}")[2]
        for name, value in element.attrib.items():
            if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
                assert math.isfinite(float(value))
        if kind == "polyline":
            found += [tuple(map(float, pair.split(","))) for pair in element.attrib["points"].split()]
        if kind == "circle":
            found.append((float(element.attrib["cx"]), float(element.attrib["cy"])))
        if kind == "line":
            found += [(float(element.attrib[f"x{end}"]), float(element.attrib[f"y{end}"])) for end in "12"]
    for x, y in found:
        assert left - 0.1 <= x <= width - RIGHT + 0.1
        assert TOP - 0.1 <= y <= height
    return [(x, y) for x, y in found]


@given(POINTS, NAMES)
def test_lines_of_any_values_stay_inside(points: list[tuple[float, float]], name: str) -> None:
    intervals = [(min(y, 0.0), y) for _, y in points]
    svg = line_plot(name, name, name, [Series(name, points, intervals), Series(name, [])])
    placed(svg)
    assert ("<polyline" in svg) == (len(points) > 1)
    assert not re.search(r"[\s\",](nan|inf)", svg.replace(name, ""))


@given(st.lists(st.lists(st.builds(Bar, FINITE, FINITE, st.just("wait")), max_size=3), max_size=30))
def test_bars_of_any_values_stay_inside(rows: list[Sequence[Bar]]) -> None:
    svg = bar_plot("bars", "s", rows, [("wait", "waiting")])
    placed(svg)
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"):
        left, width = float(element.attrib["x"]), float(element.attrib["width"])
        assert width >= 0
        assert LEFT - 0.1 <= left
        assert left + width <= WIDTH - RIGHT + 0.2


@given(st.lists(st.tuples(NAMES, FINITE, FINITE, FINITE), max_size=8))
def test_intervals_of_any_values_stay_inside(rows: list[tuple[str, float, float, float]]) -> None:
    placed(interval_plot("difference", "%", rows))


@given(st.lists(FINITE, max_size=20))
def test_ticks_lie_on_their_scale_and_are_few(values: list[float]) -> None:
    scale = Scale.of(values, 10.0, 110.0)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 12
    assert ticks == sorted(ticks)
    assert all(scale.low <= tick <= scale.high for tick in ticks)


def test_values_that_are_not_finite_are_left_out() -> None:
    svg = line_plot("t", "x", "y", [Series("a", [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 4.0)])])
    assert svg.count("<circle") == 2
    placed(svg)


def test_places_are_in_proportion() -> None:
    scale = Scale.of([5.0, 20.0], 100.0, 300.0)
    assert [scale(value) for value in (0.0, 5.0, 20.0, 40.0)] == [100.0, 150.0, 300.0, 300.0]
    assert scale.ticks(4) == [0.0, 5.0, 10.0, 15.0, 20.0]
