"""Wishes and plans as YAML: what is written is read back, and what is none is named."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.deploy.plan.commands import command_line, override_text, read_override
from qanat.deploy.plan.files import decode_partial_wish, decode_plan, decode_wish, encode_plan
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.report import json_report
from qanat.deploy.plan.wish import Wish
from qanat.deploy.yaml_style import ExactDumper
from tests.deploy.plan.wishes import GUIDES, few_wishes


@pytest.mark.parametrize("name", GUIDES)
def test_a_plan_is_read_back_as_it_was_written(name: str) -> None:
    made = plan(GUIDES[name])
    text = encode_plan(made)
    assert decode_plan(text, "plan.yaml") == made
    assert encode_plan(decode_plan(text, "plan.yaml")) == text
    assert json.loads(json.dumps(json_report(made))) == yaml.safe_load(text)


def test_a_plan_keeps_any_text() -> None:
    text = "a\x85b\u2028c\u2029\ufeff\r\n\x00 : #"
    made = msgspec.structs.replace(plan(next(iter(GUIDES.values()))), served_model_name=text)
    assert decode_plan(encode_plan(made), "plan.yaml") == made


@given(st.text() | st.text("a \t\r\n\x00\x1f\x7f\x85\xa0\u2028\u2029\ufeff#:-'\"", max_size=8))
def test_any_text_is_read_back(text: str) -> None:
    content = {"a": [text, {text: text}]}
    assert yaml.safe_load(yaml.dump(content, Dumper=ExactDumper, allow_unicode=True, width=110)) == content


@settings(max_examples=100, deadline=None)
@given(few_wishes())
def test_a_wish_is_read_back_as_it_was_written(wish: Wish) -> None:
    text = yaml.safe_dump(msgspec.to_builtins(wish))
    assert decode_wish(text, "wish.yaml") == wish
    stated = decode_partial_wish(text, "wish.yaml")
    assert msgspec.convert(msgspec.to_builtins(stated), Wish) == wish


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60) | st.sampled_from(["model: &a [*a]", "&a {model: *a}", "? [a]\n: b", "1: 2", "- a"])
)
def test_any_text_is_a_wish_or_a_clear_error(text: str) -> None:
    for read in (decode_wish, decode_partial_wish, decode_plan):
        try:
            read(text, "some.yaml")
        except ConfigError as error:
            assert "some.yaml" in error.message


@settings(deadline=None)
@given(
    st.text(max_size=20) | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
)
def test_overrides_read_back(value: str | int | float | bool) -> None:
    again = read_override(override_text(value))
    if not isinstance(value, str):
        assert again == value and type(again) is type(value)
    else:
        assert isinstance(again, str | int | float | bool)
        assert again == value or override_text(again) == value or isinstance(again, int | float)


def test_a_command_line_leaves_out_what_is_left_out() -> None:
    assert command_line(Wish(model="a b", hardware="A3")) == "qanat deploy plan --model 'a b' --hardware A3"
