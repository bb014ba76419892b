"""Text of others cannot steer a terminal."""

from __future__ import annotations

from qanat.core.printable import printable


def test_what_steers_a_terminal_is_escaped() -> None:
    assert printable("a\x1b[2J\x9bK\x07\r\b") == "a\\x1b[2J\\x9bK\\x07\\r\\x08"


def test_text_is_left_alone() -> None:
    assert printable("one\ttwo\n三 ü") == "one\ttwo\n三 ü"
    assert printable("one\ttwo\n", kept="") == "one\\ttwo\\n"
