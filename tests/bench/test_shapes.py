from __future__ import annotations

import json
from pathlib import Path

import pytest

from qanat.bench.shapes import known_shapes, model_config, prepared_model, raw_config
from qanat.config.engine_config import EngineConfig
from qanat.config.model_config import ModelConfig
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import NO_VARIABLES, TINY_CONFIG, write_model


@pytest.mark.parametrize("name", sorted(known_shapes()))
def test_every_known_model_has_a_shape(name: str) -> None:
    facts = known_shapes()[name]
    model = ModelConfig.from_dict(raw_config(facts))
    assert model.num_hidden_layers == facts.num_layers
    assert model.num_full_attention_layers == facts.num_attention_layers
    assert (model.moe is not None) == facts.is_moe
    assert model.tie_word_embeddings == facts.has_tied_embeddings


def test_the_sizes_of_the_smallest_hybrid_model() -> None:
    model = model_config("qwen3.5-0.8b", NO_VARIABLES)
    assert (model.hidden_size, model.intermediate_size, model.vocab_size) == (1024, 3584, 248320)
    assert (model.num_linear_attention_layers, model.num_full_attention_layers) == (18, 6)
    assert model.conv_dim == 6144


def test_a_name_becomes_a_folder_as_long_as_it_is_needed() -> None:
    with prepared_model(EngineConfig(model="Qwen3.5-0.8B")) as ready:
        folder = Path(str(ready.model))
        assert json.loads((folder / "config.json").read_text())["hidden_size"] == 1024
        assert ready.load_format == "dummy"
        assert ready.served_model_name == ("Qwen3.5-0.8B",)
        assert [note.got for note in ready.notes] == ["dummy"]
    assert not folder.exists()


def test_a_config_file_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(TINY_CONFIG))
    with prepared_model(EngineConfig(model=str(path))) as ready:
        assert ready.load_format == "dummy"
        assert model_config(ready.model, NO_VARIABLES) == model_config(str(path), NO_VARIABLES)


def test_a_folder_and_the_file_in_it_are_the_same(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    for name in (folder, folder / "config.json"):
        with prepared_model(EngineConfig(model=str(name), load_format="dummy")) as ready:
            assert (ready.model, ready.notes) == (str(folder), ())


def test_weights_that_are_there_are_used(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").touch()
    with prepared_model(EngineConfig(model=str(folder))) as ready:
        assert ready.load_format == "auto"


def test_the_demo_model_has_a_name() -> None:
    with prepared_model(EngineConfig(model="demo")) as ready:
        assert ready.model is None
    assert model_config("demo", NO_VARIABLES).moe is not None


def test_a_name_that_nobody_knows_is_left_to_the_engine() -> None:
    with prepared_model(EngineConfig(model="./nowhere")) as ready:
        assert ready.model == "./nowhere"
    with pytest.raises(ConfigError, match="no such folder"):
        model_config("./nowhere", NO_VARIABLES)
