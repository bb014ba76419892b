"""A setting's two spellings lead to each other."""

from __future__ import annotations

import dataclasses

from qanat.config.engine_config import EngineConfig
from qanat.config.flag_names import field_of, flag_of


def test_every_field_is_found_again_by_its_flag() -> None:
    for field in dataclasses.fields(EngineConfig):
        assert field_of(flag_of(field.name)) == field_of(flag_of(field.name)[2:]) == field.name


def test_a_flag_has_dashes_only() -> None:
    assert flag_of("max_model_len") == "--max-model-len"
