"""Quantising while loading: what the layers hold afterwards, alone and on ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from qanat.platforms.groups import ParallelGroup, PlannedGroup
from qanat.quant.own import Precision, precision_of
from tests.models.tiny import FAMILIES, Family, write_checkpoint

SCHEMES = ("w8a8", "w4a8")
BY_NAME = {family.name: family for family in FAMILIES}


def load(folder: Path, scheme: str, group: ParallelGroup | None = None) -> CausalLM:
    config = ModelConfig.from_folder(folder)
    return load_model(folder, config, torch.bfloat16, "cpu", group=group, quantization=scheme)[0]


def matrices(model: CausalLM) -> dict[str, Int8Matrix | Int4Matrix]:
    found = {}
    for name, module in model.named_modules():
        for own, value in vars(module).items():
            if isinstance(value, Int8Matrix | Int4Matrix):
                found[f"{name}.{own}"] = value
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", [BY_NAME["qwen3-tied"], BY_NAME["qwen3_5_moe-fused"]], ids=str)
def test_every_layer_that_the_scheme_names_is_quantised(family: Family, scheme: str, tmp_path: Path) -> None:
    write_checkpoint(family, tmp_path, torch.bfloat16)
    plain, model = load(tmp_path, ""), load(tmp_path, scheme)
    found = matrices(model)
    for name, parameter in plain.named_parameters():
        layer = name.rpartition(".")[0]
        if not hasattr(plain.get_submodule(layer), "method"):
            assert torch.equal(model.get_parameter(name), parameter)
            continue
        precision = precision_of(scheme, layer, *parameter.shape[-2:])
        if precision is None:
            assert torch.equal(model.get_parameter(name), parameter)
            continue
        matrix = found.pop(name)
        assert isinstance(matrix, Int4Matrix) == (precision is Precision.INT4)
        wanted = precision.quantise(parameter)
        assert torch.equal(matrix.values, wanted.values) and torch.equal(matrix.scales, wanted.scales)
    assert not found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ranks_hold_parts_of_the_same_matrices(scheme: str, tmp_path: Path) -> None:
    write_checkpoint(BY_NAME["qwen3_5_moe-vision_per_expert"], tmp_path, torch.bfloat16)
    whole = matrices(load(tmp_path, scheme))
    ranks = [matrices(load(tmp_path, scheme, PlannedGroup(rank, 2))) for rank in range(2)]
    for name, matrix in whole.items():
        parts = [rank[name].dequantised() for rank in ranks]
        axis = next((a for a in range(parts[0].dim()) if parts[0].shape[a] != matrix.shape[a]), None)
        assert axis is not None, f"{name} is cut"
        together, all_of_it = torch.cat(parts, axis), matrix.dequantised()
        if axis == all_of_it.dim() - 1:
            assert torch.equal(together, all_of_it), name
        else:  # sections may be cut each on their own: the same rows in another order
            rows = {tuple(row) for row in all_of_it.flatten(0, -2).tolist()}
            assert {tuple(row) for row in together.flatten(0, -2).tolist()} == rows, name
        if axis == all_of_it.dim() - 1:
            assert {rank[name].inputs_per_segment for rank in ranks} == {matrix.inputs_per_segment}


def test_a_value_that_is_not_finite_names_its_tensor(tmp_path: Path) -> None:
    write_checkpoint(BY_NAME["qwen3-untied"], tmp_path, torch.bfloat16)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.up_proj.*not finite"):
        load(tmp_path, "w8a8")
