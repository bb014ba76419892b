"""Which parser a model gets."""

from __future__ import annotations

import pytest

from qanat.server.tools.parser import CallFormat, choose_format


@pytest.mark.parametrize(
    ("wanted", "family", "template", "chosen"),
    [
        (None, "qwen3", None, CallFormat.HERMES),
        (None, "qwen3_moe", "{{ '<tool_call>' }}", CallFormat.HERMES),
        (None, "qwen3_moe", "{{ '<function=' }}", CallFormat.XML),
        (None, "qwen3_5", None, CallFormat.XML),
        (None, "qwen3_5_moe", None, CallFormat.XML),
        ("hermes", "qwen3_5", None, CallFormat.HERMES),
        ("qwen3_coder", "qwen3", None, CallFormat.XML),
        ("qwen3_xml", "qwen3", None, CallFormat.XML),
        ("none", "qwen3", None, None),
    ],
)
def test_the_model_decides_unless_a_parser_is_named(
    wanted: str | None, family: str, template: str | None, chosen: CallFormat | None
) -> None:
    assert choose_format(wanted, family, template) is chosen
