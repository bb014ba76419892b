"""Quantised checkpoints that are damaged, incomplete or unknown: each is refused, with the tensor named.

Trial cases ENG-022 (every tensor by its own entry, no integers as weights, no scale left over) and ENG-025 (what is
left out stays as it is; unknown schemes are refused by name).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError, ConfigError
from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from qanat.quant.cut import Along, MatrixCut
from qanat.quant.parameter import Shard
from tests.models.tiny import FAMILIES, edit_config, write_checkpoint
from tests.support.quantised_checkpoints import FORMATS, default_choice, quantise_folder

BY_NAME = {family.name: family for family in FAMILIES}
FORMAT = {form.name: form for form in FORMATS}
Q_PROJ, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"

Edit = Callable[[dict[str, Tensor]], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder of a dense checkpoint in a format; it is not to be changed."""
    root = tmp_path_factory.mktemp("quantised")
    write_checkpoint(BY_NAME["qwen3-untied"], root / "plain", torch.float32)

    def make(form: str) -> Path:
        if not (root / form).exists():
            quantise_folder(root / "plain", root / form, FORMAT[form])
        return root / form

    return make


@pytest.fixture
def copy(made: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Gives a changed copy of such a checkpoint."""

    def make(form: str, edit: Edit | None = None, describe: Edit | None = None) -> Path:
        folder = tmp_path / form
        shutil.copytree(made(form), folder)
        if edit is not None:
            path = next(folder.glob("*.safetensors"))
            tensors = load_file(path)
            edit(tensors)
            save_file(tensors, path)
        path = folder / "quant_model_description.json"
        if describe is not None:
            description = json.loads(path.read_text())
            describe(description)
            path.write_text(json.dumps(description))
        return folder

    return make


def load(folder: Path) -> CausalLM:
    return load_model(folder, ModelConfig.from_folder(folder), torch.float32, "cpu")[0]


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    return caught.value.message


def put(name: str, value: float, place: tuple[int, ...] = (1, 0)) -> Edit:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[name][place[: tensors[name].dim()]] = value

    return edit


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -0.01])
@pytest.mark.parametrize(
    ("form", "name"),
    [("ascend-W8A8_DYNAMIC", "weight_scale"), ("ascend-W8A8", "deq_scale"), ("gptq-int4", "scales")],
)
def test_an_impossible_scale(copy: Callable[..., Path], form: str, name: str, value: float) -> None:
    tensor = f"{DOWN}.{name}"
    message = refused(copy(form, put(tensor, value)))
    assert repr(tensor) in message and "scales are positive, finite numbers" in message


def test_a_scale_may_be_zero_where_there_is_nothing_to_scale(copy: Callable[..., Path]) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[f"{DOWN}.weight"][3] = 0
        tensors[f"{DOWN}.weight_scale"][3] = 0

    model = load(copy("ascend-W8A8_DYNAMIC", edit))
    assert not model.get_submodule(DOWN).weight.dequantised()[3].any()  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(
    ("form", "name", "change", "part"),
    [
        (
            "ascend-W8A8_DYNAMIC",
            "weight_scale",
            lambda t: t[:-1].contiguous(),
            "shape [63, 1], expected [64, 1]",
        ),
        ("ascend-W8A8_DYNAMIC", "weight", lambda t: t.float(), "type F32, expected I8"),
        ("ascend-W8A8", "quant_bias", lambda t: t.long(), "type I64, expected I32"),
        ("ascend-W8A8", "deq_scale", lambda t: t.to(torch.int64) - 1, "no bit patterns of 32-bit numbers"),
        (
            "ascend-W4A8_DYNAMIC",
            "weight",
            lambda t: t[:, :-2].contiguous(),
            "shape [32, 94], expected [32, 96]",
        ),
        ("fp8-blocks", "weight_scale_inv", lambda t: t[:, :-1].contiguous(), "shape [2, 2], expected [2, 3]"),
        ("compressed-W4A16", "weight_shape", lambda t: t + 1, "says [65, 97], but the matrix is [64, 96]"),
        ("gptq-int4", "g_idx", lambda t: t.flip(0).contiguous(), "groups out of order"),
        ("gptq-int4", "qzeros", lambda t: t + 1, "other zero points than 8"),
        ("ascend-W4A4_DYNAMIC", "weight", lambda t: t * 3, "outside -8..7"),
    ],
)
def test_a_tensor_that_does_not_fit(
    copy: Callable[..., Path], form: str, name: str, change: Callable[[Tensor], Tensor], part: str
) -> None:
    tensor = f"{DOWN}.{name}"

    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[tensor] = change(tensors[tensor])

    message = refused(copy(form, edit))
    assert repr(tensor) in message and part in message


def test_a_number_that_is_none(copy: Callable[..., Path]) -> None:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[f"{DOWN}.weight"].view(torch.uint8)[0, 0] = 0x7F

    message = refused(copy("fp8-blocks", edit))
    assert repr(f"{DOWN}.weight") in message and "not a finite number" in message


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("ascend-W8A8_DYNAMIC", "weight_scale"),
        ("ascend-W8A8", "quant_bias"),
        ("fp8-blocks", "weight_scale_inv"),
        ("gptq-int4", "scales"),
        ("compressed-int8", "weight"),
    ],
)
def test_a_missing_tensor(copy: Callable[..., Path], form: str, name: str) -> None:
    tensor = f"{DOWN}.{name}"
    message = refused(copy(form, lambda tensors: tensors.pop(tensor)))
    assert repr(tensor) in message


@pytest.mark.parametrize("form", ["gptq-int4", "compressed-int8", "fp8-blocks"])
def test_a_tensor_too_many(copy: Callable[..., Path], form: str) -> None:
    tensor = f"{DOWN}.k_scale"
    message = refused(copy(form, lambda tensors: tensors.update({tensor: torch.ones(1)})))
    assert repr(tensor) in message and "no rule leaves it out" in message


class TestDescription:
    """Ascend's description file against the tensors."""

    def test_an_unknown_kind(self, copy: Callable[..., Path]) -> None:
        folder = copy("ascend-W8A8_DYNAMIC", describe=lambda d: d.update({f"{Q_PROJ}.weight": "W2A2"}))
        message = refused(folder)
        assert repr(f"{Q_PROJ}.weight") in message and "unknown kind 'W2A2'" in message

    def test_a_tensor_that_is_not_there(self, copy: Callable[..., Path]) -> None:
        folder = copy("ascend-W8A8_DYNAMIC", lambda tensors: tensors.pop(f"{Q_PROJ}.weight_scale"))
        message = refused(folder)
        assert repr(f"{Q_PROJ}.weight_scale") in message and "which no file" in message

    def test_a_tensor_that_it_leaves_out(self, copy: Callable[..., Path]) -> None:
        folder = copy("ascend-W8A8_DYNAMIC", describe=lambda d: d.pop("model.norm.weight"))
        message = refused(folder)
        assert "'model.norm.weight'" in message and "does not describe" in message

    def test_integers_that_it_calls_float(self, copy: Callable[..., Path]) -> None:
        """Integers must never be read as if they were weights."""
        auxiliary = [f"{Q_PROJ}.weight_scale", f"{Q_PROJ}.weight_offset"]

        def without(entries: dict[str, Any]) -> None:
            for name in auxiliary:
                del entries[name]
            if isinstance(entries[f"{Q_PROJ}.weight"], str):
                entries[f"{Q_PROJ}.weight"] = "FLOAT"

        message = refused(copy("ascend-W8A8_DYNAMIC", without, without))
        assert repr(f"{Q_PROJ}.weight") in message and "type I8" in message

    def test_two_kinds_in_one_matrix(self, copy: Callable[..., Path]) -> None:
        folder = copy("ascend-W8A8_DYNAMIC", describe=lambda d: d.update({f"{Q_PROJ}.weight_scale": "W8A16"}))
        message = refused(folder)
        assert repr(f"{Q_PROJ}.weight_scale") in message and "W8A16" in message

    def test_an_unknown_suffix(self, copy: Callable[..., Path]) -> None:
        name = f"{Q_PROJ}.left_trans"
        folder = copy(
            "ascend-W8A8_DYNAMIC",
            lambda tensors: tensors.update({name: torch.ones(2)}),
            lambda d: d.update({name: "W8A8_DYNAMIC"}),
        )
        assert repr(name) in refused(folder)

    def test_broken_or_doubled(self, copy: Callable[..., Path]) -> None:
        folder = copy("ascend-W8A8_DYNAMIC")
        path = folder / "quant_model_description.json"
        shutil.copy(path, folder / "quant_model_description_w8a8.json")
        assert "has 2 files" in refused(folder)
        (folder / "quant_model_description_w8a8.json").unlink()
        path.write_text(path.read_text()[:100])
        assert path.name in refused(folder)

    def test_a_truncated_file(self, copy: Callable[..., Path]) -> None:
        folder = copy("ascend-W8A8_DYNAMIC")
        path = folder / "quant_model_weights.safetensors"
        path.write_bytes(path.read_bytes()[:-64])
        assert "truncated" in refused(folder)


class TestConfig:
    """What config.json says of the format."""

    @pytest.mark.parametrize(
        ("form", "changes", "part"),
        [
            ("fp8-blocks", {"fmt": "e5m2"}, "e5m2"),
            ("fp8-blocks", {"weight_block_size": [32]}, "[32]"),
            ("gptq-int4", {"bits": 3}, "bits 3"),
            ("gptq-int4", {"checkpoint_format": "marlin"}, "marlin"),
            ("gptq-int4", {"dynamic": {"-:(": {}}}, "no regular expression"),
            ("gptq-int4", {"dynamic": {"+:.*down.*": {"bits": 8}}}, "+:.*down.*"),
            ("compressed-int8", {"format": "marlin-24"}, "marlin-24"),
            ("compressed-int8", {"config_groups": None}, "no config_groups"),
        ],
    )
    def test_what_is_not_known_is_named(
        self, copy: Callable[..., Path], form: str, changes: dict[str, Any], part: str
    ) -> None:
        folder = copy(form)
        section = json.loads((folder / "config.json").read_text())["quantization_config"]
        edit_config(folder, quantization_config={**section, **changes})
        assert part in refused(folder)


def test_a_packed_matrix_is_not_cut_through_a_word() -> None:
    cut = MatrixCut(64, 96, Shard(1, ((12, 12),), (0,)), 1)
    assert cut.region(Along(0, 4, is_packed=True), 1) == Shard(0, ((3, 3),), (0,))
    with pytest.raises(ConfigError, match="packs 8 values .* lower --tensor-parallel-size"):
        cut.region(Along(0, 8, is_packed=True), 1)


def test_what_is_left_out_stays_as_it_is(made: Callable[[str], Path], tmp_path: Path) -> None:
    """Routers, the head and a whole layer in float beside quantised ones."""
    write_checkpoint(BY_NAME["qwen3_5_moe-vision_per_expert"], tmp_path / "plain", torch.float32)
    quantise_folder(
        tmp_path / "plain",
        tmp_path / "quantised",
        FORMAT["compressed-int8"],
        lambda matrix: default_choice(matrix) and ".layers.1." not in matrix,
    )
    model = load(tmp_path / "quantised")
    plain = load(tmp_path / "plain")
    for name in ("lm_head", "model.layers.0.mlp.gate", "model.layers.1.linear_attn.in_proj_qkv"):
        ours, theirs = model.get_submodule(name).weight, plain.get_submodule(name).weight
        assert isinstance(ours, Tensor) and isinstance(theirs, Tensor) and torch.equal(ours, theirs), name


def test_experts_of_several_kinds_become_one_stack(tmp_path: Path) -> None:
    """Gate in float beside up in int4, some experts in int8: each is what it was, as near as the stack holds it."""
    write_checkpoint(BY_NAME["qwen3_moe-per_expert"], tmp_path / "plain", torch.float32)
    kinds = {
        "layers.0.mlp.experts.1.": FORMAT["ascend-W8A8_DYNAMIC"],
        "": FORMAT["ascend-W4A8_DYNAMIC"],
    }
    meanings = quantise_folder(
        tmp_path / "plain",
        tmp_path / "quantised",
        kinds,
        lambda matrix: default_choice(matrix) and not matrix.endswith("layers.1.mlp.experts.2.gate_proj"),
    )
    model = load(tmp_path / "quantised")
    mixed, with_float = (model.get_submodule(f"model.layers.{layer}.mlp.experts") for layer in range(2))
    stack = mixed.gate_up_proj.dequantised()  # type: ignore[union-attr, operator]
    for expert in range(3):
        written = meanings[f"model.layers.0.mlp.experts.{expert}.up_proj.weight"]
        torch.testing.assert_close(stack[expert, 48:], written)
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    floats: Any = with_float.gate_up_proj
    assert torch.equal(floats[2, :48], plain["model.layers.1.mlp.experts.2.gate_proj.weight"])
    torch.testing.assert_close(floats[2, 48:], meanings["model.layers.1.mlp.experts.2.up_proj.weight"])
