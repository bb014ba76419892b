"""The page's colours against WCAG 2.1: 4.5 to 1 for text (1.4.3), 3 to 1 for what a plot shows (1.4.11)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = (files("qanat.server.web") / "static" / "base.css").read_text(encoding="utf-8")
LIGHT, DARK, DARK_OF_SYSTEM = (
    ':root {\n', ':root[data-theme="dark"] {\n', ':root:not([data-theme]) {\n'
)  # fmt: skip
TEXTS = ("text", "faint", "strong", "error")
GROUNDS = ("page", "card", "soft", "code")
PLOTTED = tuple(f"series-{number}" for number in range(1, 6))


def palette(selector: str) -> dict[str, str]:
    """Colours by name."""
    block = STYLE.split(selector, 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    """Relative, from 0 (black) to 1."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_itself() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("selector", [LIGHT, DARK])
def test_text_can_be_read_on_every_ground(selector: str) -> None:
    colours = palette(selector)
    pairs = [(text, ground) for text in TEXTS for ground in GROUNDS] + [("on-strong", "strong")]
    found = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("selector", [LIGHT, DARK])
def test_what_is_plotted_stands_out(selector: str) -> None:
    colours = palette(selector)
    found = {name: round(contrast(colours[name], colours["card"]), 2) for name in PLOTTED}
    assert {name: ratio for name, ratio in found.items() if ratio < 3} == {}


def test_dark_by_choice_and_by_the_system_are_the_same() -> None:
    assert palette(DARK) == palette(DARK_OF_SYSTEM)
    assert palette(DARK).keys() == palette(LIGHT).keys()
