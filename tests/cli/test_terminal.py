from __future__ import annotations

import pytest

from qanat.cli import terminal
from qanat.cli.terminal import MAX_SHOWN_CHARS, decision_lines, require_engine, show
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError


def test_values_are_shown_as_users_write_them() -> None:
    assert [show(value) for value in (True, None, 3, 0.5, "x", {"a": [1]})] == [
        "true",
        "null",
        "3",
        "0.5",
        "x",
        '{"a": [1]}',
    ]
    assert len(show("x" * 1000)) <= MAX_SHOWN_CHARS


def test_decisions_with_the_same_outcome_and_reason_share_a_line() -> None:
    decisions = [
        Decision("A", "1", "no effect", "why"),
        Decision("C", None, 3, "why"),
        Decision("B", "2", "no effect", "why"),
        Decision("D", "4", "no effect", "other"),
    ]
    assert list(decision_lines(decisions)) == [
        "A 1, B 2 -> no effect: why",
        "C -> 3: why",
        "D 4 -> no effect: other",
    ]


def test_the_base_alone_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require_engine("serve")
    monkeypatch.setattr(terminal, "ENGINE_MODULES", ("json", "no_such_module"))
    with pytest.raises(
        ConfigError, match=r"qanat serve needs no_such_module, .* pip install 'qanat\[engine\]'"
    ):
        require_engine("serve")
