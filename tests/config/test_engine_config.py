from __future__ import annotations

import dataclasses

import pytest

from qanat import EngineConfig
from qanat.config.engine_config import GROUPS, OPTIONS
from qanat.config.options import Option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError


def test_there_are_about_a_hundred_settings_in_twelve_groups() -> None:
    assert len(GROUPS) == 12
    assert 40 <= len(OPTIONS) <= 110
    assert set(OPTIONS) == {
        field.name
        for field in dataclasses.fields(EngineConfig)
        if field.name not in ("foreign_flags", "notes")
    }


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_setting_says_what_it_does(option: Option) -> None:
    assert option.help.endswith((".", "}.")) and len(option.help) >= 15
    option.check(option.default, option.flag)
    assert option.kind is Kind.TEXT or not option.choices


def test_no_two_settings_share_a_spelling() -> None:
    spellings = [spelling for option in OPTIONS.values() for spelling in (option.flag, *option.aliases)]
    assert len(spellings) == len(set(spellings))


def test_an_unknown_keyword_raises() -> None:
    with pytest.raises(TypeError, match="max_num_seq"):
        EngineConfig(max_num_seq=3)


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("port", 70000, "--port: 70000 is too large; the most is 65535"),
        ("max_num_seqs", 0, "--max-num-seqs: 0 is too small; the least is 1"),
        ("memory_share", 1.5, "--memory-share: 1.5 is too large"),
        ("dtype", "int8", "--dtype: 'int8' is not one of auto, bfloat16"),
        ("max_model_len", "8k", "--max-model-len: '8k' is not of the type int"),
        ("max_num_seqs", True, "--max-num-seqs: True is not of the type int"),
        ("served_model_name", "x", "--served-model-name: 'x' is not of the type tuple"),
        ("trust_remote_code", 1, "--trust-remote-code: 1 is not of the type bool"),
    ],
)
def test_values_out_of_bounds_name_flag_and_bound(name: str, value: object, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**{name: value})
    assert part in caught.value.message
    assert caught.value.param == OPTIONS[name].flag


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EngineConfig().port = 3
