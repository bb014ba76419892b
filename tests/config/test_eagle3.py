"""The config of an EAGLE-3 draft is read in both layouts and held against the model's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qanat.config.eagle3 import read_eagle3
from qanat.config.model_config import ModelConfig
from qanat.config.speculative import SpeculativeSettings, speculative_settings
from qanat.core.decision import Decision
from qanat.core.errors import CheckpointError, ConfigError
from tests.support.eagle3 import LAYOUTS, config_json
from tests.worker.tiny_model import CONFIGS

CONFIG_FOLDER = Path(__file__).parent.parent / "data" / "configs"
TARGET = CONFIGS["qwen3"]


def written(folder: Path, layout: str, draft_vocab_size: int = 40, **changes: Any) -> Path:
    raw = config_json(TARGET, layout, draft_vocab_size, **changes)
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def read(value: dict[str, Any], num_ranks: int = 1) -> tuple[SpeculativeSettings, list[Decision]]:
    said: list[Decision] = []
    flag = {"method": "eagle3", "num_speculative_tokens": 3}
    return speculative_settings(flag | value, TARGET, num_ranks, said), said


@pytest.mark.parametrize(
    ("name", "target", "taps"),
    [
        ("Qwen3-32B-eagle3.specforge-train", "Qwen3-32B", (2, 32, 61)),
        ("Qwen3-32B-eagle3.angelslim-train", "Qwen3-32B", (2, 32, 61)),
        ("Qwen3-235B-A22B-eagle3.specforge-train", "Qwen3-235B-A22B", (2, 47, 91)),
    ],
)
def test_configs_of_real_drafts(name: str, target: str, taps: tuple[int, ...], tmp_path: Path) -> None:
    """A list of SpecForge's names layers by their outputs, and then means the same layers as no list."""
    shutil.copy(CONFIG_FOLDER / f"{name}.json", tmp_path / "config.json")
    model = ModelConfig.from_dict(json.loads((CONFIG_FOLDER / f"{target}.json").read_text()))
    config = read_eagle3(tmp_path, model)
    assert config.tapped_layers == taps and config.draft_vocab_size == 32000 and config.is_reduced
    layer = config.layer
    assert (layer.hidden_size, layer.head_dim, layer.rope.theta) == (model.hidden_size, 128, 1e6)


def test_both_layouts_say_the_same(tmp_path: Path) -> None:
    flat, nested = (read_eagle3(written(tmp_path, layout), TARGET) for layout in LAYOUTS)
    assert flat.layer.num_key_value_heads == nested.layer.num_key_value_heads == 2
    assert flat.tapped_layers == nested.tapped_layers == (2, 2, 1)
    assert flat.draft_vocab_size == nested.draft_vocab_size == 40


def test_layers_are_listed_by_output_or_by_input(tmp_path: Path) -> None:
    key = "eagle_aux_hidden_state_layer_ids"
    flat = written(tmp_path, "flat", eagle_config={key: [0, 1, 2]})
    assert read_eagle3(flat, TARGET).tapped_layers == (1, 2, 3)
    nested = written(tmp_path, "speculators", **{key: [0, 1, 2]})
    assert read_eagle3(nested, TARGET).tapped_layers == (0, 1, 2)


@pytest.mark.parametrize(
    ("layout", "changes", "message"),
    [
        ("flat", {"architectures": ["LlamaForCausalLM"]}, "describes no EAGLE-3 draft"),
        (
            "flat",
            {"hidden_size": 128},
            "made for a model with hidden size 128, and .* is 64: name the draft of",
        ),
        ("flat", {"vocab_size": 97}, "made for a model with vocabulary 97"),
        ("flat", {"num_hidden_layers": 2}, "num_hidden_layers 1"),
        ("flat", {"attention_bias": True}, "attention_bias true"),
        ("flat", {"norm_output": False}, "norm_output false"),
        ("flat", {"draft_vocab_size": 200}, "draft_vocab_size 200 is above"),
        ("flat", {"num_attention_heads": 3}, "is not a multiple of"),
        ("flat", {"quantization_config": {"bits": 4}}, "quantised draft models"),
        ("speculators", {"fc_norm": True}, "fc_norm true"),
        ("speculators", {"target_hidden_size": 32}, "hidden size 32"),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "must list 3 layers"),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "made for another model"),
    ],
)
def test_what_is_no_draft_of_this_model_is_refused(
    layout: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_eagle3(written(tmp_path, layout, **changes), TARGET)


def test_the_flag_and_what_is_said_of_it(tmp_path: Path) -> None:
    value = {"model": str(written(tmp_path, "flat")), "draft_tensor_parallel_size": 1, "enforce_eager": True}
    settings, [decision] = read(value)
    assert settings.method == "eagle3" and settings.is_eager and settings.eagle3 is not None
    assert decision.field == "--speculative-config.model"
    assert decision.got == "40 of 96 tokens can be guessed; layers 2, 2, 1"
    again, _ = read(settings.as_flag() or {})
    assert again == settings


@pytest.mark.parametrize("method", ["eagle", None])
def test_eng_021_the_method_is_taken_from_the_draft(method: str | None, tmp_path: Path) -> None:
    settings, said = read({"method": method, "model": str(written(tmp_path, "flat"))})
    assert settings.method == "eagle3"
    assert [(one.field, one.wanted, one.got) for one in said][0] == (
        "--speculative-config.method",
        method,
        "eagle3",
    )


def test_eng_021_another_draft_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, "flat", architectures=["Qwen3_5MultiTokenPredictor"])
    with pytest.raises(CheckpointError, match="describes no EAGLE-3 draft"):
        read({"method": "eagle3", "model": str(tmp_path)})
    settings, [decision] = read({"method": "eagle", "model": str(tmp_path)})
    assert not settings.method and decision.got == "no speculation"


def test_each_of_several_ranks_has_the_whole_draft_model(tmp_path: Path) -> None:
    value = {"model": str(written(tmp_path, "flat")), "draft_tensor_parallel_size": 2}
    settings, said = read(value, num_ranks=2)
    assert settings.method == "eagle3"
    [decision] = [one for one in said if one.field.endswith("draft_tensor_parallel_size")]
    assert (decision.wanted, decision.got) == (2, 1)


@pytest.mark.parametrize(
    ("value", "num_ranks", "message"),
    [
        ({}, 1, "needs model, the folder"),
        ({"model": "nobody/there"}, 1, "there is no such folder; download"),
        (
            {"model": ".", "draft_tensor_parallel_size": 2},
            1,
            "2 ranks cannot share the draft model; give 1: the",
        ),
        ({"model": ".", "draft_tensor_parallel_size": 3}, 2, "give 1 or 2, as --tensor-parallel-size is"),
        ({"model": ".", "draft_tensor_parallel_size": "many"}, 1, "draft_tensor_parallel_size"),
    ],
)
def test_what_cannot_be_is_refused(value: dict[str, Any], num_ranks: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(value, num_ranks)
