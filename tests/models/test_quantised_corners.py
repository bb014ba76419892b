"""Quantised checkpoints at the edges of their formats: one scale an output, scales of nothing, lone numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from qanat.cli.main import main
from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from qanat.platforms.groups import ParallelGroup, PlannedGroup
from qanat.quant.base import ExpertSizes, LinearSizes
from qanat.quant.cut import MatrixCut
from qanat.quant.formats.ascend_int8 import AscendInt8, AscendStatic
from qanat.quant.formats.compressed_matrix import CompressedInt8
from qanat.quant.parameter import ParameterFactory
from qanat.quant.stored import StoredExperts
from tests.models.tiny import FAMILIES, edit_config, write_checkpoint
from tests.support.quantised_checkpoints import FORMATS, quantise_folder

BY_NAME = {family.name: family for family in FAMILIES}
FORMAT = {form.name: form for form in FORMATS}
DOWN = "model.layers.1.mlp.down_proj"
EIGHTS = -2004318072
"""A word of eight eights: the zero of symmetric four-bit numbers."""

META = torch.device("meta")

Edit = Callable[[dict[str, Tensor]], Any]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    write_checkpoint(BY_NAME["qwen3-untied"], folder, torch.float32)
    return folder


def load(folder: Path, group: ParallelGroup | None = None) -> CausalLM:
    return load_model(folder, ModelConfig.from_folder(folder), torch.float32, "cpu", group=group)[0]


def written(plain: Path, folder: Path, form: str, edit: Edit) -> Path:
    """A checkpoint in a format whose tensors, and whose description if it has one, were edited."""
    quantise_folder(plain, folder, FORMAT[form])
    path = next(folder.glob("*.safetensors"))
    tensors = load_file(path)
    before = set(tensors)
    edit(tensors)
    save_file(tensors, path)
    described = folder / "quant_model_description.json"
    if described.exists():
        kinds = json.loads(described.read_text())
        kinds.update({name: FORMAT[form].kind for name in set(tensors) - before})
        described.write_text(json.dumps(kinds))
    return folder


def matrix(model: CausalLM, name: str = DOWN) -> Tensor:
    weight = model.get_submodule(name).weight
    assert isinstance(weight, Int4Matrix | Int8Matrix)
    return weight.dequantised()


def section(form: str, **changes: Any) -> dict[str, Any]:
    """`quantization_config` with changes; those of `weights` go into the group of compressed-tensors."""
    made = json.loads(json.dumps(FORMAT[form].config))
    weights = changes.pop("weights", None)
    if weights is not None:
        made["config_groups"]["group_0"]["weights"].update(weights)
    return {**made, **changes}


Plan = Callable[[dict[str, Any]], tuple[int, str]]


@pytest.fixture
def plan(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    """Gives exit code and output of `qanat plan` on a folder with config.json only."""

    def run(quantization_config: dict[str, Any]) -> tuple[int, str]:
        (tmp_path / "config.json").write_text((plain / "config.json").read_text())
        edit_config(tmp_path, quantization_config=quantization_config)
        code = main(["plan", str(tmp_path)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


@pytest.mark.parametrize("group_size", [-1, 0])
def test_one_scale_an_output_in_gptq(plan: Plan, group_size: int) -> None:
    code, output = plan(section("gptq-int4", group_size=group_size))
    assert code == 0 and "GPTQ 4 bits -> int4" in output, output


@pytest.mark.parametrize("bits", [4, 8])
def test_one_scale_an_output_in_compressed_tensors(plan: Plan, bits: int) -> None:
    weights = {"strategy": "channel", "group_size": None, "num_bits": bits}
    code, output = plan(section("compressed-W4A16", weights=weights))
    assert code == 0 and f"W{bits}A16 -> int{bits}" in output, output


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (section("gptq-int4", group_size="x"), "group_size 'x' is no whole number"),
        (section("gptq-int4", group_size=None), "group_size None is no whole number"),
        (section("compressed-W4A16", weights={"group_size": "x"}), "group_size 'x' is no whole number"),
        (section("compressed-W4A16", weights={"group_size": 36}), "do not divide into groups of 36"),
        (
            section("compressed-FP8", weights={"strategy": "block", "block_structure": ["x", 0]}),
            "['x', 0] is no pair of sizes",
        ),
        (section("gptq-int4", dynamic=["x"]), "dynamic"),
    ],
)
def test_sizes_that_are_none_are_refused(plan: Plan, config: dict[str, Any], part: str) -> None:
    code, output = plan(config)
    assert code == 2 and part in output and "Traceback" not in output, output


def test_gptq_with_one_scale_an_output_is_read(plain: Path, tmp_path: Path) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.endswith(".g_idx")]:
            base = name.removesuffix(".g_idx")
            tensors[name] = torch.zeros_like(tensors[name])
            for own in ("scales", "qzeros"):
                tensors[f"{base}.{own}"] = tensors[f"{base}.{own}"][:1].contiguous()

    folder = written(plain, tmp_path, "gptq-int4", edit)
    edit_config(folder, quantization_config=section("gptq-int4", group_size=-1))
    weight = load(folder).get_submodule(DOWN).weight
    assert isinstance(weight, Int4Matrix) and weight.scales.shape[1] == 1


ZEROS: dict[str, tuple[Edit, tuple[slice, slice]]] = {
    "ascend-W4A8_DYNAMIC": (
        lambda t: (t[f"{DOWN}.weight"][1].zero_(), t[f"{DOWN}.weight_scale"][2:4].zero_()),
        (slice(2, 4), slice(None)),
    ),
    "ascend-W8A8": (
        lambda t: [t[f"{DOWN}.{name}"][3].zero_() for name in ("weight", "deq_scale", "quant_bias")],
        (slice(3, 4), slice(None)),
    ),
    "fp8-blocks": (
        lambda t: (
            t[f"{DOWN}.weight"].view(torch.uint8)[:32, :32].zero_(),
            t[f"{DOWN}.weight_scale_inv"][0, 0].zero_(),
        ),
        (slice(0, 32), slice(0, 32)),
    ),
    "fp8-tensor": (
        lambda t: (t[f"{DOWN}.weight"].view(torch.uint8).zero_(), t[f"{DOWN}.weight_scale"].zero_()),
        (slice(None), slice(None)),
    ),
    "gptq-int4": (
        lambda t: (t[f"{DOWN}.qweight"][:2].fill_(EIGHTS), t[f"{DOWN}.scales"][0].zero_()),
        (slice(None), slice(0, 16)),
    ),
    "compressed-int8": (
        lambda t: (t[f"{DOWN}.weight"][3].zero_(), t[f"{DOWN}.weight_scale"][3].zero_()),
        (slice(3, 4), slice(None)),
    ),
    "compressed-W4A16": (
        lambda t: (t[f"{DOWN}.weight_packed"][:, :2].fill_(EIGHTS), t[f"{DOWN}.weight_scale"][:, 0].zero_()),
        (slice(None), slice(0, 16)),
    ),
}


@pytest.mark.parametrize("form", ZEROS)
def test_a_scale_may_be_zero_where_there_are_only_zeros(plain: Path, tmp_path: Path, form: str) -> None:
    edit, place = ZEROS[form]
    read = matrix(load(written(plain, tmp_path, form, edit)))
    assert not read[place].any() and torch.isfinite(read).all()
    assert form == "fp8-tensor" or read.any()


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("fp8-blocks", "weight_scale_inv"),
        ("compressed-int8", "weight_scale"),
        ("compressed-W4A16", "weight_scale"),
        ("ascend-W4A8_DYNAMIC", "weight_scale"),
    ],
)
def test_elsewhere_it_may_not(plain: Path, tmp_path: Path, form: str, name: str) -> None:
    folder = written(plain, tmp_path, form, lambda tensors: tensors[f"{DOWN}.{name}"][0, 0].zero_())
    with pytest.raises(CheckpointError, match="scales are positive") as caught:
        load(folder)
    assert repr(f"{DOWN}.{name}") in caught.value.message


@pytest.mark.parametrize("value", [1.0, float("nan")])
@pytest.mark.parametrize("form", ["ascend-WFP8AFP8_DYNAMIC", "ascend-W8A8"])
def test_offsets_of_symmetric_kinds_are_zero(plain: Path, tmp_path: Path, form: str, value: float) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        num_outputs = tensors[f"{DOWN}.weight"].shape[0]
        tensors[f"{DOWN}.weight_offset"] = torch.zeros(num_outputs, 1)
        tensors[f"{DOWN}.weight_offset"][2] = value

    with pytest.raises(CheckpointError) as caught:
        load(written(plain, tmp_path, form, edit))
    assert repr(f"{DOWN}.weight_offset") in caught.value.message


@pytest.mark.parametrize("form", ["fp8-tensor", "compressed-int8-static"])
def test_a_lone_number_may_have_no_axis(plain: Path, tmp_path: Path, form: str) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.endswith(("input_scale", "input_zero_point"))]:
            tensors[name] = tensors[name].reshape(())

    assert matrix(load(written(plain, tmp_path, form, edit))).any()


def test_weights_that_were_made_for_activations_of_16_bits_are_noted(plan: Plan) -> None:
    config = section("compressed-int8")
    config["config_groups"]["group_0"]["input_activations"] = None
    code, output = plan(config)
    assert code == 0 and "W8A16 -> int8" in output and "which it leaves in 16 bits, become int8" in output


@pytest.mark.parametrize(
    "form", [AscendStatic(), CompressedInt8("W8A8 static", static_shapes={"input_scale": (1,)})]
)
def test_experts_say_that_they_leave_out_fixed_scales(form: Any) -> None:
    method, layer = (
        StoredExperts([{name: form for name in ("gate_proj", "up_proj", "down_proj")}]),
        nn.Module(),
    )
    method.create(layer, ExpertSizes(1, 64, 32), ParameterFactory(torch.float32, META))
    notes = {kind.note for kind in method.kinds(layer, lambda outline: 0)}
    assert len(notes) == 1 and "fixed scales are not used" in notes.pop()


@pytest.mark.parametrize(
    ("form", "of_first", "of_second"),
    [(AscendInt8("W8A8_DYNAMIC", has_bias=True), True, False), (AscendStatic(), True, True)],
)
def test_an_outline_has_the_bias_that_its_rank_has(form: Any, of_first: bool, of_second: bool) -> None:
    for rank, expected in enumerate((of_first, of_second)):
        cut = MatrixCut.of(
            LinearSizes(64, 32, 1), ParameterFactory(torch.float32, META, PlannedGroup(rank, 2))
        )
        assert (form.outline(cut, torch.float32).bias is not None) == expected


def test_a_zero_point_makes_a_bias() -> None:
    form = CompressedInt8("W8A8 static", static_shapes={"input_scale": (1,), "input_zero_point": (1,)})
    assert form.outline(MatrixCut(8, 32), torch.float32).bias is not None


@pytest.mark.parametrize(
    "form", ["fp8-blocks", "gptq-int4-asymmetric", "ascend-W4A4_MXFP4", "ascend-W8A16-asymmetric"]
)
def test_ranks_have_the_weights_of_one_where_rows_are_rounded_anew(
    plain: Path, tmp_path: Path, form: str
) -> None:
    folder = written(plain, tmp_path, form, lambda tensors: None)
    whole = matrix(load(folder))
    parts = [matrix(load(folder, PlannedGroup(rank, 2))) for rank in range(2)]
    assert torch.equal(torch.cat(parts, 1), whole)


def test_experts_of_ranks_too(tmp_path: Path) -> None:
    write_checkpoint(BY_NAME["qwen3_moe-per_expert"], tmp_path / "plain", torch.float32)
    folder = written(tmp_path / "plain", tmp_path / "quantised", "fp8-blocks", lambda tensors: None)
    stacks = [
        load(folder, group).get_submodule("model.layers.0.mlp.experts").down_proj
        for group in (None, PlannedGroup(0, 2), PlannedGroup(1, 2))
    ]
    whole, *parts = (stack.dequantised() for stack in stacks if isinstance(stack, Int8Matrix))
    assert torch.equal(torch.cat(parts, 2), whole)
