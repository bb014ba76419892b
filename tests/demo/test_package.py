import importlib.util
import json
from pathlib import Path

from .conftest import DEMO

MAX_BYTES = 24 * 2**20


def model_folder() -> Path:
    spec = importlib.util.spec_from_file_location("qanat_demo", DEMO / "src" / "qanat_demo" / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model_path()


def test_model_folder_is_complete_and_small() -> None:
    folder = model_folder()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MAX_BYTES


def test_configuration_is_that_of_a_real_checkpoint() -> None:
    config = json.loads((model_folder() / "config.json").read_text())
    text = config["text_config"]
    assert config["architectures"] == ["Qwen3_5MoeForConditionalGeneration"]
    assert (config["model_type"], text["model_type"]) == ("qwen3_5_moe", "qwen3_5_moe_text")
    assert text["max_position_embeddings"] == 262_144
    assert text["layer_types"][:4] == ["linear_attention"] * 3 + ["full_attention"]
    assert text["hidden_size"] % 64 == 0
    assert all(
        text[key] % 32 == 0
        for key in ("head_dim", "linear_key_head_dim", "moe_intermediate_size", "vocab_size")
    )
    rotary = text["head_dim"] * text["rope_parameters"]["partial_rotary_factor"]
    assert sum(text["rope_parameters"]["mrope_section"]) == rotary / 2


def test_both_end_tokens_stop_generation() -> None:
    folder = model_folder()
    added = {
        t["content"]: t["id"] for t in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    }
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    assert ends == [added["<|im_end|>"], added["<|endoftext|>"]]
    assert (
        json.loads((folder / "config.json").read_text())["text_config"]["eos_token_id"]
        == added["<|endoftext|>"]
    )
