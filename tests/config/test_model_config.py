"""Reading config.json: real files of every family, their older and newer spellings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def raw(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def config(name: str) -> ModelConfig:
    return ModelConfig.from_dict(raw(name))


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """The file with keys changed where they stand: in the text part if there is one."""
    whole = raw(name)
    text = whole.get("text_config", whole)
    text.update(changes)
    return whole


def refused(value: dict[str, Any]) -> str:
    with pytest.raises(CheckpointError) as caught:
        ModelConfig.from_dict(value)
    return caught.value.message


def test_dense_qwen3() -> None:
    c = config("Qwen3-0.6B")
    assert (c.model_family, c.hidden_size, c.num_hidden_layers, c.head_dim) == ("qwen3", 1024, 28, 128)
    assert (c.num_attention_heads, c.num_key_value_heads, c.intermediate_size) == (16, 8, 3072)
    assert c.tie_word_embeddings
    assert not c.attention_output_gate
    assert (c.rope.theta, c.rope.rotary_dim, c.rope.mrope_section, c.rope.scaling) == (1e6, 128, None, None)
    assert c.layer_types == ("full_attention",) * 28
    assert (c.moe, c.gdn, c.num_mtp_layers, c.is_hybrid, c.conv_dim) == (None, None, 0, False, 0)
    assert (c.dtype, c.eos_token_ids, c.has_vision) == ("bfloat16", (151645,), False)
    assert c.context_window == c.max_position_embeddings == 40960


def test_moe_qwen3() -> None:
    c = config("Qwen3-30B-A3B")
    assert c.model_family == "qwen3_moe"
    assert c.moe is not None
    assert (c.moe.num_experts, c.moe.top_k, c.moe.expert_intermediate_size) == (128, 8, 768)
    assert (c.moe.shared_expert_intermediate_size, c.moe.norm_topk_prob) == (0, True)
    assert all(c.is_moe_layer(layer) for layer in range(48))


def test_dense_qwen3_5() -> None:
    c = config("Qwen3.5-0.8B")
    assert (c.model_family, c.vocab_size, c.head_dim) == ("qwen3_5", 248320, 256)
    assert c.attention_output_gate
    assert c.layer_types[:4] == ("linear_attention",) * 3 + ("full_attention",)
    assert (c.num_linear_attention_layers, c.num_full_attention_layers) == (18, 6)
    assert c.gdn is not None
    assert (c.gdn.key_dim, c.gdn.value_dim, c.conv_dim, c.gdn.conv_kernel_dim) == (2048, 2048, 6144, 4)
    assert (c.rope.theta, c.rope.rotary_dim, c.rope.mrope_section) == (1e7, 64, (11, 11, 10))
    assert (c.tie_word_embeddings, c.has_vision, c.num_mtp_layers) == (True, True, 1)


def test_moe_qwen3_6() -> None:
    c = config("Qwen3.6-35B-A3B")
    assert (c.model_family, c.intermediate_size) == ("qwen3_5_moe", 0)
    assert c.moe is not None
    assert c.gdn is not None
    assert (c.moe.num_experts, c.moe.shared_expert_intermediate_size) == (256, 512)
    assert c.moe.norm_topk_prob  # absent in the file: this family always does
    assert (c.gdn.num_key_heads, c.gdn.num_value_heads, c.conv_dim) == (16, 32, 8192)


def test_text_only_export_is_the_same_model() -> None:
    nested = raw("Qwen3.5-9B")
    flat = {**nested["text_config"], "architectures": ["Qwen3_5ForCausalLM"]}
    ours, theirs = ModelConfig.from_dict(flat), ModelConfig.from_dict(nested)
    assert (ours.architecture, ours.has_vision) == ("Qwen3_5ForCausalLM", False)
    same = {"architecture": theirs.architecture, "has_vision": True}
    assert {**vars(ours), **same} == vars(theirs)


def test_layer_types_are_derived_where_they_are_missing() -> None:
    value = raw("Qwen3.5-9B")
    assert value["text_config"].pop("layer_types")
    assert ModelConfig.from_dict(value).layer_types == config("Qwen3.5-9B").layer_types
    value["text_config"]["full_attention_interval"] = 2
    assert ModelConfig.from_dict(value).num_full_attention_layers == 16


def test_outer_tied_flag_wins() -> None:
    """Exporters leave it out of the text part, or write that class's default there."""
    value = changed("Qwen3.5-0.8B", tie_word_embeddings=False)
    assert ModelConfig.from_dict(value).tie_word_embeddings
    del value["tie_word_embeddings"]
    assert not ModelConfig.from_dict(value).tie_word_embeddings
    del value["text_config"]["tie_word_embeddings"]
    assert not ModelConfig.from_dict(value).tie_word_embeddings


def test_dense_layers_among_experts() -> None:
    value = changed("Qwen3-30B-A3B", decoder_sparse_step=2, mlp_only_layers=[3])
    c = ModelConfig.from_dict(value)
    assert [c.is_moe_layer(layer) for layer in range(6)] == [False, True, False, False, False, True]
    del value["intermediate_size"]
    assert "'intermediate_size'" in refused(value)


def test_newer_name_of_num_experts() -> None:
    value = raw("Qwen3-30B-A3B")
    value["num_local_experts"] = value.pop("num_experts")
    assert ModelConfig.from_dict(value) == config("Qwen3-30B-A3B")


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_scaling": YARN},
        {"rope_scaling": {**YARN, "type": "yarn", "rope_type": None}},
        {"rope_parameters": {**YARN, "rope_theta": 1_000_000}, "rope_theta": None},
    ],
)
def test_yarn(spelling: dict[str, Any]) -> None:
    c = ModelConfig.from_dict(changed("Qwen3-8B", **spelling))
    assert c.rope.theta == 1e6
    assert c.rope.scaling is not None
    assert (c.rope.scaling.factor, c.rope.scaling.original_max_position_embeddings) == (4.0, 32768)
    assert (c.rope.scaling.beta_fast, c.rope.scaling.beta_slow, c.rope.scaling.truncate) == (32, 1, True)
    assert c.rope.scaling.attention_factor == pytest.approx(1.1386294)
    assert c.context_window == 131072


def test_yarn_of_qwen3_5_keeps_the_axes() -> None:
    rope = {**raw("Qwen3.5-9B")["text_config"]["rope_parameters"], **YARN}
    rope["original_max_position_embeddings"] = 262144
    c = ModelConfig.from_dict(changed("Qwen3.5-9B", rope_parameters=rope))
    assert (c.rope.mrope_section, c.rope.rotary_dim, c.context_window) == ((11, 11, 10), 64, 1048576)


@pytest.mark.parametrize(
    "scaling",
    [
        {**YARN, "original_max_position_embeddings": 262144},
        {"type": "yarn", "factor": 4.0},
        {
            **YARN,
            "original_max_position_embeddings": 262144,
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
        },
    ],
    ids=["rope_type", "type", "with theta"],
)
def test_rope_scaling_goes_before_rope_parameters(scaling: dict[str, Any]) -> None:
    """As in transformers; what only rope_parameters says of the model's shape still holds."""
    c = ModelConfig.from_dict(changed("Qwen3.5-4B", rope_scaling=scaling))
    assert c.rope.scaling is not None
    assert (c.rope.scaling.factor, c.rope.scaling.original_max_position_embeddings) == (4.0, 262144)
    assert c.context_window == 1048576
    assert (c.rope.theta, c.rope.mrope_section, c.rope.rotary_dim) == (1e7, (11, 11, 10), 64)


def test_rope_scaling_replaces_another_scaling_whole() -> None:
    before = {**YARN, "beta_fast": 7.0, "rope_theta": 5e6}
    scaling = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32768}
    c = ModelConfig.from_dict(changed("Qwen3-8B", rope_parameters=before, rope_scaling=scaling))
    assert c.rope.scaling is not None
    assert (c.rope.scaling.factor, c.rope.scaling.beta_fast, c.rope.theta) == (2.0, 32.0, 1e6)
    plain = changed("Qwen3-8B", rope_parameters=before, rope_scaling={"rope_type": "default"})
    assert ModelConfig.from_dict(plain).rope.scaling is None


@pytest.mark.parametrize("scaling", [None, {}])
def test_an_empty_rope_scaling_says_nothing(scaling: dict[str, Any] | None) -> None:
    assert ModelConfig.from_dict(changed("Qwen3.5-4B", rope_scaling=scaling)) == config("Qwen3.5-4B")


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", ["float16", "torch.float16"])
def test_dtype_spellings(key: str, value: str) -> None:
    whole = raw("Qwen3-0.6B")
    del whole["torch_dtype"]
    assert ModelConfig.from_dict(whole).dtype == "bfloat16"
    assert ModelConfig.from_dict({**whole, key: value}).dtype == "float16"
    assert "'int8'" in refused({**whole, key: "int8"})


def test_quantised_files_carry_their_section() -> None:
    assert config("Qwen3-32B").quantization_config is None
    section = config("Qwen3-32B-FP8").quantization_config
    assert section is not None
    assert section["quant_method"] == "fp8"
    assert config("nvidia-Qwen3.6-27B-NVFP4").quantization_config is not None


@pytest.mark.parametrize(
    "key",
    ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
     "max_position_embeddings", "linear_num_key_heads", "linear_value_head_dim", "moe_intermediate_size",
     "num_experts", "num_experts_per_tok", "shared_expert_intermediate_size"],
)  # fmt: skip
def test_a_missing_key_is_named(key: str) -> None:
    value = raw("Qwen3.5-35B-A3B")
    del value["text_config"][key]
    message = refused(value)
    assert f"config.json.text_config has no '{key}'" in message


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("Qwen3-8B", {"hidden_size": "4096"}, "hidden_size must be a whole number >= 1, not '4096'"),
        ("Qwen3-8B", {"num_hidden_layers": 0}, "num_hidden_layers must be"),
        ("Qwen3-8B", {"head_dim": True}, "head_dim must be"),
        ("Qwen3-8B", {"rms_norm_eps": -1.0}, "rms_norm_eps must be a positive number"),
        ("Qwen3-8B", {"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
        ("Qwen3-8B", {"num_key_value_heads": 5}, "not a multiple of num_key_value_heads"),
        ("Qwen3-8B", {"attention_bias": True}, "attention_bias true"),
        ("Qwen3-8B", {"use_sliding_window": True}, "use_sliding_window true"),
        ("Qwen3-8B", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ("Qwen3-8B", {"rope_theta": None}, "has no 'rope_theta'"),
        ("Qwen3-8B", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_type 'llama3'"),
        ("Qwen3-8B", {"rope_scaling": {"rope_type": "yarn"}}, "has no 'factor'"),
        ("Qwen3-8B", {"layer_types": ["sliding_attention"] * 36}, "layer type 'sliding_attention'"),
        ("Qwen3-8B", {"layer_types": ["full_attention"] * 35}, "must list 36 layers"),
        ("Qwen3-8B", {"partial_rotary_factor": 1.5}, "192 rotary dimensions"),
        ("Qwen3-30B-A3B", {"num_experts_per_tok": 129}, "num_experts_per_tok (129) exceeds num_experts (128)"),
        ("Qwen3-30B-A3B", {"mlp_only_layers": 3}, "mlp_only_layers must be a list"),
        ("Qwen3.5-9B", {"linear_num_value_heads": 24}, "not a multiple of linear_num_key_heads (16)"),
        ("Qwen3.5-9B", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim must be"),
        ("Qwen3.5-9B", {"rope_parameters": {"rope_theta": 1e7, "mrope_section": [8, 8, 8]}}, "interleaved"),
        ("Qwen3.5-9B", {"rope_parameters": 7}, "rope_parameters must be an object"),
        ("Qwen3.5-9B", {"eos_token_id": ["x"]}, "eos_token_id must be a token id"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(name: str, changes: dict[str, Any], words: str) -> None:
    assert words in refused(changed(name, **changes))


@pytest.mark.parametrize("value", [None, [], ["LlamaForCausalLM"], "Qwen3ForCausalLM", [3]])
def test_architectures(value: object) -> None:
    message = refused({**raw("Qwen3-8B"), "architectures": value})
    assert "Qwen3MoeForCausalLM" in message


class TestFolder:
    def test_stop_ids_are_the_union_with_the_generation_config(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(raw("Qwen3.5-0.8B")))
        assert ModelConfig.from_folder(tmp_path).eos_token_ids == (248044,)
        (tmp_path / "generation_config.json").write_text('{"eos_token_id": [248046, 248044]}')
        assert ModelConfig.from_folder(str(tmp_path)).eos_token_ids == (248044, 248046)

    def test_no_folder_no_file_no_json(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="is not a folder"):
            ModelConfig.from_folder(tmp_path / "none")
        with pytest.raises(CheckpointError, match="has no config.json"):
            ModelConfig.from_folder(tmp_path)
        for content in (b"{", b"\xff\xff", b"[" * 100_000):
            (tmp_path / "config.json").write_bytes(content)
            with pytest.raises(CheckpointError, match="cannot be read as JSON"):
                ModelConfig.from_folder(tmp_path)
        (tmp_path / "config.json").write_text("[1]")
        with pytest.raises(CheckpointError, match="must hold a JSON object"):
            ModelConfig.from_folder(tmp_path)
