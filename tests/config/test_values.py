from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.config.values import Kind, read_text, read_value
from qanat.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("1m", 10**6),
        ("1M", 2**20),
        ("25.6k", 25600),
        ("0.5K", 512),
        ("-1", -1),
        ("2g", 2 * 10**9),
        ("1T", 2**40),
    ],
)
def test_counts_are_read_like_vllm(text: str, value: int) -> None:
    assert read_text(Kind.COUNT, [text], "--x") == value


@pytest.mark.parametrize(
    "text", ["", "8q", "k", "0.3", "1.0001k", "1e3", "--", "8 192", "nan", "0x10", "8kk"]
)
def test_counts_that_are_none_name_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--x: .* is not a whole number such as") as caught:
        read_text(Kind.COUNT, [text], "--x")
    assert caught.value.param == "--x"


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12), st.sampled_from("kKmMgGtT"))
def test_a_unit_multiplies(number: int, unit: str) -> None:
    power = "kmgt".index(unit.lower()) + 1
    factor = 1000**power if unit.islower() else 1024**power
    assert read_text(Kind.COUNT, [f"{number}{unit}"], "--x") == number * factor


@pytest.mark.parametrize("text", ["auto", "-1", "AUTO"])
def test_a_length_may_be_left_to_the_engine(text: str) -> None:
    assert read_text(Kind.LENGTH, [text], "--x") is None
    assert read_value(Kind.LENGTH, -1, "--x") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4GiB", 4 * 2**30),
        ("500MB", 500 * 10**6),
        ("1024", 1024),
        ("1.5GiB", 3 * 2**29),
        ("10 KiB", 10240),
        ("7B", 7),
        ("4G", 4 * 2**30),
        ("4g", 4 * 10**9),
    ],
)
def test_sizes_take_units(text: str, value: int) -> None:
    assert read_text(Kind.BYTES, [text], "--x") == value


@pytest.mark.parametrize("text", ["4gib", "four", "4 parsecs", ""])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size such as 4GiB"):
        read_text(Kind.BYTES, [text], "--x")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "x", ""])
def test_numbers_are_finite(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a number"):
        read_text(Kind.NUMBER, [text], "--x")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{'a': 1}", "double quotes"),
        ("a: 1", r"starts with \{"),
        ('{"a": 1', "character 8"),
        ("[1]", "is not a JSON object"),
        ('"a"', "is not a JSON object"),
        ("", "invalid JSON"),
    ],
)
def test_json_errors_say_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        read_text(Kind.JSON, [text], "--compilation-config")
    assert caught.value.message.startswith("--compilation-config: ")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.TEXT, 3),
        (Kind.TEXTS, [1]),
        (Kind.TEXTS, 3),
        (Kind.COUNT, True),
        (Kind.COUNT, 1.5),
        (Kind.NUMBER, True),
        (Kind.SWITCH, 1),
        (Kind.JSON, [1]),
        (Kind.BYTES, None),
    ],
)
def test_typed_values_of_another_type_are_refused(kind: Kind, value: object) -> None:
    with pytest.raises(ConfigError, match="file.yaml: x"):
        read_value(kind, value, "file.yaml: x")


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Kind.TEXTS, "a", ("a",)),
        (Kind.TEXTS, ["a", "b"], ("a", "b")),
        (Kind.COUNT, "8k", 8000),
        (Kind.NUMBER, 1, 1.0),
        (Kind.SWITCH, "yes", True),
        (Kind.JSON, '{"a": 1}', {"a": 1}),
        (Kind.JSON, {"a": 1}, {"a": 1}),
    ],
)
def test_typed_values_are_read(kind: Kind, value: object, read: object) -> None:
    assert read_value(kind, value, "x") == read


@pytest.mark.parametrize(("text", "value"), [("True", True), ("on", True), ("0", False), ("No", False)])
def test_switches_take_words(text: str, value: bool) -> None:
    assert read_text(Kind.SWITCH, [text], "--x") is value


def test_a_switch_takes_no_other_word() -> None:
    with pytest.raises(ConfigError, match="'maybe' is neither true nor false"):
        read_text(Kind.SWITCH, ["maybe"], "--x")
