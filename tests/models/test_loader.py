"""Loading: what good checkpoints of all layouts become, and the one clear message that each bad one gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.models.decoder import CausalLM
from qanat.models.loader import LoadReport, load_model
from tests.models.tiny import FAMILIES, edit_config, stack_experts, write_checkpoint

DENSE = next(family for family in FAMILIES if family.name == "qwen3_5-vision_tied")
UNTIED = next(family for family in FAMILIES if family.name == "qwen3_5-untied")
EXPERTS = next(family for family in FAMILIES if family.name == "qwen3_moe-per_expert")

Edit = Callable[[dict[str, Tensor]], None]


def load(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[CausalLM, LoadReport]:
    return load_model(folder, ModelConfig.from_folder(folder), dtype, "cpu")


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    return caught.value.message


def rewrite(folder: Path, edit: Edit) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


def parameters(model: CausalLM) -> dict[str, Tensor]:
    return dict(model.named_parameters())


def same(left: CausalLM, right: CausalLM) -> bool:
    ours, theirs = parameters(left), parameters(right)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    write_checkpoint(DENSE, tmp_path, torch.float32)
    return tmp_path


@pytest.fixture
def untied(tmp_path: Path) -> Path:
    write_checkpoint(UNTIED, tmp_path, torch.float32)
    return tmp_path


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    write_checkpoint(EXPERTS, tmp_path, torch.float32)
    return tmp_path


class TestGood:
    def test_report_accounts_for_every_tensor(self, dense: Path) -> None:
        model, report = load(dense)
        names = load_file(dense / "model.safetensors").keys()
        vision = sum(name.startswith("model.visual.") for name in names)
        assert report.num_tensors == len(names)
        assert report.dropped == {"vision": vision, "mtp": 2}
        assert report.num_used == len(names) - vision - 2 == report.num_parameters
        own = parameters(model)
        laid_out = sum(values.nbytes for name, values in own.items() if name.endswith("conv1d.weight"))
        assert report.mapped_bytes + laid_out == sum(values.nbytes for values in own.values())
        assert report.copied_bytes == laid_out > 0
        assert f"{vision} vision" in str(report)

    def test_mapped_weights_are_private(self, untied: Path) -> None:
        """Writing to a parameter reaches neither the file nor another model of the same file."""
        first, _ = load(untied)
        second, _ = load(untied)
        before = second.model.norm.weight.clone()
        with torch.no_grad():
            first.model.norm.weight.fill_(7.0)
        assert torch.equal(second.model.norm.weight, before)
        assert same(load(untied)[0], second)

    def test_shards_equal_one_file(self, untied: Path) -> None:
        whole, _ = load(untied)
        model_in_shards(untied)
        sharded, report = load(untied)
        assert report.num_files == 2
        assert same(sharded, whole)

    def test_shards_without_an_index(self, untied: Path) -> None:
        whole, _ = load(untied)
        model_in_shards(untied)
        (untied / "model.safetensors.index.json").unlink()
        assert same(load(untied)[0], whole)

    def test_both_expert_layouts_give_the_same_model(self, experts: Path) -> None:
        one_by_one, report = load(experts)
        assert report.copied_bytes > 0
        rewrite(experts, lambda tensors: replace_all(tensors, stack_experts(tensors)))
        stacked, report = load(experts)
        assert report.copied_bytes == 0
        assert same(stacked, one_by_one)

    def test_text_only_prefix(self, dense: Path) -> None:
        whole, _ = load(dense)

        def rename(tensors: dict[str, Tensor]) -> None:
            replace_all(
                tensors,
                {
                    name.replace("model.language_model.", "model."): tensor
                    for name, tensor in tensors.items()
                    if not name.startswith(("model.visual.", "mtp."))
                },
            )

        rewrite(dense, rename)
        model, report = load(dense)
        assert report.dropped == {}
        assert same(model, whole)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_cast(self, untied: Path, dtype: torch.dtype) -> None:
        wide, _ = load(untied)
        narrow, report = load(untied, dtype)
        kept = sum(p.nbytes for name, p in parameters(wide).items() if name.endswith("A_log"))
        assert report.mapped_bytes == kept
        for name, parameter in parameters(narrow).items():
            wanted = torch.float32 if name.endswith("A_log") else dtype
            assert parameter.dtype == wanted
            assert torch.equal(parameter, parameters(wide)[name].to(wanted))

    def test_log_decay_stays_fp32_from_a_bf16_checkpoint(self, tmp_path: Path) -> None:
        write_checkpoint(UNTIED, tmp_path, torch.bfloat16)
        model, _ = load(tmp_path, torch.bfloat16)
        stored = load_file(tmp_path / "model.safetensors")["model.layers.0.linear_attn.A_log"]
        loaded = model.model.layers[0].linear_attn.A_log
        assert stored.dtype == torch.bfloat16
        assert loaded.dtype == torch.float32
        assert torch.equal(loaded, stored.float())

    def test_a_repeated_tied_head_is_dropped_by_name(self, dense: Path) -> None:
        def repeat(tensors: dict[str, Tensor]) -> None:
            tensors["lm_head.weight"] = tensors["model.language_model.embed_tokens.weight"].clone()

        rewrite(dense, repeat)
        assert load(dense)[1].dropped["tied head"] == 1

    def test_progress_reaches_the_end(self, untied: Path) -> None:
        seen: list[tuple[int, int]] = []
        config = ModelConfig.from_folder(untied)
        load_model(untied, config, torch.float32, "cpu", lambda done, total: seen.append((done, total)))
        assert [done for done, _ in seen] == list(range(1, seen[0][1] + 1))


class TestBad:
    def test_missing_tensor(self, dense: Path) -> None:
        name = "model.language_model.layers.2.mlp.down_proj.weight"
        rewrite(dense, lambda tensors: tensors.pop(name))
        message = refused(dense)
        assert f"lacks tensor '{name}' of shape [64, 96], needed" in message

    def test_missing_head_of_an_untied_model(self, untied: Path) -> None:
        rewrite(untied, lambda tensors: tensors.pop("lm_head.weight"))
        assert "'lm_head.weight' of shape [320, 64]" in refused(untied)

    def test_missing_expert(self, experts: Path) -> None:
        name = "model.layers.1.mlp.experts.5.up_proj.weight"
        rewrite(experts, lambda tensors: tensors.pop(name))
        assert f"'{name}' of shape [48, 64], needed" in refused(experts)

    def test_several_missing_are_counted(self, dense: Path) -> None:
        edit_config(dense, text_config={**config_of(dense)["text_config"], **five_layers(dense)})
        assert "model.language_model.layers.4." in refused(dense)
        assert "more" in refused(dense)

    def test_wrong_shape(self, untied: Path) -> None:
        name = "model.layers.1.linear_attn.in_proj_qkv.weight"
        rewrite(untied, lambda tensors: tensors.update({name: torch.zeros(160, 63)}))
        message = refused(untied)
        assert f"'{name}'" in message
        assert "has shape [160, 63], expected [160, 64]" in message
        assert "model.safetensors" in message

    def test_wrong_shape_of_an_expert(self, experts: Path) -> None:
        name = "model.layers.0.mlp.experts.3.gate_proj.weight"
        rewrite(experts, lambda tensors: tensors.update({name: torch.zeros(47, 64)}))
        assert "has shape [47, 64], expected [48, 64]" in refused(experts)

    def test_unexpected_tensor(self, untied: Path) -> None:
        name = "model.layers.0.self_attn.rotary.table"
        rewrite(untied, lambda tensors: tensors.update({name: torch.zeros(2)}))
        message = refused(untied)
        assert f"'{name}'" in message
        assert "no rule leaves it out" in message

    def test_expert_too_many(self, experts: Path) -> None:
        name = "model.layers.0.mlp.experts.8.down_proj.weight"
        rewrite(experts, lambda tensors: tensors.update({name: torch.zeros(64, 48)}))
        assert "num_experts is 8" in refused(experts)

    def test_layer_too_many(self, untied: Path) -> None:
        name = "model.layers.4.input_layernorm.weight"
        rewrite(untied, lambda tensors: tensors.update({name: torch.zeros(64)}))
        assert f"'{name}'" in refused(untied)

    def test_same_parameter_twice(self, experts: Path) -> None:
        extra = torch.zeros(8, 64, 48)
        rewrite(experts, lambda tensors: tensors.update({"model.layers.0.mlp.experts.down_proj": extra}))
        assert "both fill parameter 'model.layers.0.mlp.experts.down_proj'" in refused(experts)

    def test_same_tensor_in_two_files(self, untied: Path) -> None:
        save_file({"model.norm.weight": torch.zeros(64)}, untied / "more.safetensors")
        assert "'model.norm.weight' is in both" in refused(untied)

    def test_tied_head_that_differs(self, dense: Path) -> None:
        rewrite(dense, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(320, 64)}))
        assert "tie_word_embeddings" in refused(dense)

    @pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float64])
    def test_a_type_that_is_not_a_weight(self, untied: Path, dtype: torch.dtype) -> None:
        name = "model.layers.3.self_attn.k_proj.weight"
        rewrite(untied, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
        message = refused(untied)
        assert f"'{name}'" in message
        assert "expected one of BF16, F16, F32" in message

    def test_truncated_file(self, untied: Path) -> None:
        path = untied / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1000])
        message = refused(untied)
        assert "truncated" in message
        assert str(path) in message

    def test_missing_shard(self, untied: Path) -> None:
        second = model_in_shards(untied)
        second.unlink()
        assert f"lacks {second.name}, listed in model.safetensors.index.json" in refused(untied)
        (untied / "model.safetensors.index.json").unlink()
        assert f"lacks {second.name}, a shard" in refused(untied)

    def test_index_that_promises_more(self, untied: Path) -> None:
        model_in_shards(untied)
        path = untied / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["weight_map"]["ghost"] = "model-00001-of-00002.safetensors"
        path.write_text(json.dumps(index))
        assert "promises tensor 'ghost'" in refused(untied)

    @pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "model.bin", 3])
    def test_index_that_points_elsewhere(self, untied: Path, name: object) -> None:
        path = untied / "model.safetensors.index.json"
        path.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
        assert "must lie in a .safetensors file of this folder" in refused(untied)

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
    def test_pickles_are_refused(self, untied: Path, name: str) -> None:
        (untied / "model.safetensors").rename(untied / name)
        message = refused(untied)
        assert name in message
        assert "convert them to safetensors" in message

    def test_no_weights(self, untied: Path) -> None:
        (untied / "model.safetensors").unlink()
        assert "has no *.safetensors files" in refused(untied)

    def test_quantization_config(self, untied: Path) -> None:
        edit_config(untied, quantization_config={"quant_method": "awq", "bits": 4})
        assert "is quantised (awq), which this version does not read" in refused(untied)

    def test_quantised_by_a_file_beside_it(self, untied: Path) -> None:
        (untied / "hf_quant_config.json").write_text("{}")
        assert "is quantised (modelopt), which this version does not read" in refused(untied)

    def test_unknown_architecture(self, untied: Path) -> None:
        edit_config(untied, architectures=["MambaForCausalLM"])
        message = refused(untied)
        assert "'MambaForCausalLM'" in message
        assert "Qwen3ForCausalLM" in message


def config_of(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "config.json").read_text())


def five_layers(folder: Path) -> dict[str, object]:
    kinds = config_of(folder)["text_config"]["layer_types"]
    assert isinstance(kinds, list)
    return {"num_hidden_layers": 5, "layer_types": [*kinds, "full_attention"]}


def replace_all(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    other = dict(other)
    tensors.clear()
    tensors.update(other)


def model_in_shards(folder: Path) -> Path:
    """Splits model.safetensors in two with an index; returns the second shard."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    names = sorted(tensors)
    shards = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / shard)
        shards |= dict.fromkeys(part, shard)
    path.unlink()
    index = {"metadata": {}, "weight_map": shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder / "model-00002-of-00002.safetensors"
