from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from qanat.config.model_config import ModelConfig
from qanat.core.errors import ConfigError
from qanat.kernels.native import module
from qanat.kernels.providers import choose_providers, kernels_sentence, left_to_reference, op_table
from qanat.kernels.registry import all_ops


@pytest.fixture(scope="module")
def model() -> ModelConfig:
    from qanat_demo import model_path

    return ModelConfig.from_folder(Path(model_path()))


def test_every_op_of_the_demo_model_is_native(model: ModelConfig) -> None:
    choose_providers(1)
    assert {op.chosen.name for op in all_ops()} == {"native"}
    assert all(line.split()[1:] == ["native", "yes"] for line in op_table(model, "bfloat16")[1:])


def test_the_reference_can_be_asked_for(model: ModelConfig) -> None:
    choose_providers(1, "reference")
    assert {op.chosen.name for op in all_ops()} == {"reference"}
    assert left_to_reference(model, "float16") == {}
    assert "as QANAT_ISA asks" in kernels_sentence(model, "float32", "reference")


def test_what_is_not_covered_is_named(model: ModelConfig) -> None:
    choose_providers(1)
    odd = dataclasses.replace(model, head_dim=40)
    (line,) = [line for line in op_table(odd, "float32") if line.startswith("paged_attention")]
    assert "reference (heads of 16 to 256 dimensions" in line and line.endswith("yes")
    assert "this model has 40" in kernels_sentence(odd, "float32")
    assert "float16 is not covered" in kernels_sentence(model, "float16")


def test_an_instruction_set_that_is_not_there_is_refused(model: ModelConfig) -> None:
    with pytest.raises(ConfigError, match="QANAT_ISA=mmx.*scalar"):
        choose_providers(1, "mmx")
    with pytest.raises(ConfigError, match="QANAT_ISA=mmx"):
        kernels_sentence(model, "float32", "mmx")
    choose_providers(2, "scalar")
    assert module.native().instruction_set() == "scalar"
