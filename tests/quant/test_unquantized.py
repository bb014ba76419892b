from __future__ import annotations

import pytest
import torch
from torch import nn

from qanat.kernels.native.module import is_built, why_not
from qanat.kernels.providers import choose_providers
from qanat.quant.base import ExpertSizes, ExpertsMethod, LinearMethod, LinearSizes
from qanat.quant.parameter import ParameterFactory, ParameterInfo, WeightParameter
from qanat.quant.unquantized import UnquantizedExperts, UnquantizedLinear

CPU = ParameterFactory(torch.float32, torch.device("cpu"))


def test_linear_uses_the_matrix_as_it_lies() -> None:
    method: LinearMethod = UnquantizedLinear()
    layer, x = nn.Module(), torch.randn(3, 5)
    method.create(layer, LinearSizes(5, 7, shard_axis=1), CPU)
    matrix = torch.randn(7, 5)
    layer.weight = WeightParameter(matrix, layer.weight.info)
    method.finalize(layer)
    assert layer.weight.data_ptr() == matrix.data_ptr()
    torch.testing.assert_close(method.apply(layer, x, None), x @ matrix.T)
    torch.testing.assert_close(method.logits(layer, x), x @ matrix.T)
    assert layer.weight.info.shard_axis == 1


def test_experts() -> None:
    method: ExpertsMethod = UnquantizedExperts()
    layer = nn.Module()
    method.create(layer, ExpertSizes(4, 6, 10), CPU)
    assert layer.gate_up_proj.shape == (4, 20, 6)
    assert layer.down_proj.shape == (4, 6, 10)
    with torch.no_grad():
        layer.gate_up_proj.normal_()
        layer.down_proj.normal_()
    method.finalize(layer)
    x, ids = torch.randn(2, 6), torch.tensor([[3, 0], [0, 2]])
    out = method.apply(layer, x, ids, None)
    gate, up = (layer.gate_up_proj[2] @ x[1]).chunk(2)
    torch.testing.assert_close(out[1, 1], layer.down_proj[2] @ (torch.nn.functional.silu(gate) * up))


def test_a_parameter_shares_its_tensor_and_keeps_its_info() -> None:
    tensor, info = torch.randn(4), ParameterInfo(shard_axis=0, sections=(1, 3))
    parameter = WeightParameter(tensor, info)
    assert parameter.data_ptr() == tensor.data_ptr()
    assert parameter.info is info
    assert not parameter.requires_grad


def test_a_factory_makes_its_type_on_its_device() -> None:
    meta = ParameterFactory(torch.bfloat16, torch.device("meta"))
    assert meta.make((2, 3), ParameterInfo()).dtype == torch.bfloat16
    assert meta.make((2, 3), ParameterInfo(), torch.float32).dtype == torch.float32
    assert meta.make((10**6, 10**6), ParameterInfo()).is_meta


def test_native_products_pack_a_matrix_and_let_go_of_it() -> None:
    if not is_built():
        pytest.skip(why_not())
    choose_providers(1)
    method, layer, x = UnquantizedLinear(), nn.Module(), torch.randn(3, 5)
    method.create(layer, LinearSizes(5, 7), CPU)
    with torch.no_grad():
        layer.weight.normal_()
    expected = x @ layer.weight.T
    method.finalize(layer)
    assert not list(layer.parameters())
    torch.testing.assert_close(method.apply(layer, x, None), expected)
    torch.testing.assert_close(method.logits(layer, x), expected)
