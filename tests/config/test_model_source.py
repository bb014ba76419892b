from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from qanat.config.engine_config import EngineConfig
from qanat.config.env import read_environment
from qanat.config.model_source import locate_model
from qanat.config.prepare import prepare
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import NO_VARIABLES, TWO_CORES, write_model

MODELSCOPE = read_environment({"VLLM_USE_MODELSCOPE": "True"})


def install(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """Puts a module into this process as if it had been installed."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_local_folder_is_a_model(tmp_path: Path) -> None:
    assert locate_model(EngineConfig(model=str(tmp_path)), NO_VARIABLES) == (tmp_path, [])


def test_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ConfigError, match="is a file; give the folder"):
        locate_model(EngineConfig(model=str(tmp_path / "model.gguf")), NO_VARIABLES)


@pytest.mark.parametrize("model", ["/no/such/folder", "./models", "~/no-such-folder", "a/b/c", "", "../x"])
def test_a_path_that_is_not_there_is_not_looked_for_on_a_hub(model: str) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        locate_model(EngineConfig(model=model), NO_VARIABLES)


def test_a_hub_id_without_the_hub_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, environment in (("huggingface_hub", NO_VARIABLES), ("modelscope", MODELSCOPE)):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(ConfigError, match=f"pip install {module.replace('_', '-')}"):
            locate_model(EngineConfig(model="Qwen/Qwen3-0.6B"), environment)


def test_a_hub_id_is_fetched_with_what_the_engine_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def snapshot_download(model: str, **arguments: Any) -> str:
        calls.append((model, arguments))
        return str(tmp_path)

    install(monkeypatch, "huggingface_hub", snapshot_download=snapshot_download)
    install(monkeypatch, "modelscope", snapshot_download=snapshot_download)
    wishes = EngineConfig(model="Qwen/Qwen3-0.6B", revision="v1", download_dir="/d")
    folder, (decision,) = locate_model(wishes, NO_VARIABLES)
    assert folder == tmp_path and decision.why == "fetched from Hugging Face"
    assert calls[0][0] == "Qwen/Qwen3-0.6B"
    assert calls[0][1]["revision"] == "v1" and calls[0][1]["cache_dir"] == "/d"
    patterns = calls[0][1]["allow_patterns"]
    assert "*.safetensors" in patterns and not any(pattern in patterns for pattern in ("*", "*.bin", "*.py"))
    _, (decision,) = locate_model(EngineConfig(model="Qwen/Qwen3-0.6B", load_format="dummy"), MODELSCOPE)
    assert decision.why == "fetched from ModelScope"
    assert "*.safetensors" not in calls[1][1]["allow_patterns"] and "revision" not in calls[1][1]


def test_a_hub_that_cannot_be_reached_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(model: str, **arguments: Any) -> str:
        raise OSError("cannot connect\nlong trace\n")

    install(monkeypatch, "huggingface_hub", snapshot_download=snapshot_download)
    with pytest.raises(ConfigError) as caught:
        locate_model(EngineConfig(model="Qwen/Qwen3-0.6B"), NO_VARIABLES)
    assert "could not be fetched from Hugging Face: cannot connect" in caught.value.message
    assert "\n" not in caught.value.message


def test_no_model_means_the_demo_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, "qanat_demo", model_path=lambda: tmp_path)
    folder, (decision,) = locate_model(EngineConfig(), NO_VARIABLES)
    assert folder == tmp_path and decision.got == "qanat-demo"


def test_no_model_and_no_demo_says_both_ways_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qanat_demo", None)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError, match="folder or a hub id.*qanat-demo"):
        locate_model(EngineConfig(), NO_VARIABLES)


def test_preparing_goes_all_the_way(tmp_path: Path) -> None:
    write_model(tmp_path)
    environment = read_environment({"VLLM_API_KEY": "s3cret", "OMP_NUM_THREADS": "100", "VLLM_USE_V1": "1"})
    prepared = prepare(EngineConfig(model=str(tmp_path)), environment, TWO_CORES)
    assert prepared.config.model_path == str(tmp_path)
    assert prepared.config.served_model_names == (str(tmp_path),)
    assert prepared.config.num_threads == 2
    assert prepared.wishes.api_key == ("s3cret",)
    fields = [decision.field for decision in prepared.decisions]
    assert {"VLLM_API_KEY", "OMP_NUM_THREADS", "VLLM_USE_V1", "--num-threads"} <= set(fields)
    assert "s3cret" not in " ".join(map(str, prepared.decisions))


def test_refusals_come_before_any_download(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "huggingface_hub")  # without snapshot_download: it must not be called
    with pytest.raises(ConfigError, match="--middleware is refused"):
        prepare(
            EngineConfig(model="Qwen/Qwen3-0.6B", foreign_flags={"middleware": ("a.B",)}),
            NO_VARIABLES,
            TWO_CORES,
        )


@pytest.mark.parametrize("how", ["config.json", "ascend"])
def test_quantised_checkpoints_are_recognised(tmp_path: Path, how: str) -> None:
    if how == "ascend":
        write_model(tmp_path)
        (tmp_path / "quant_model_description_w8a8.json").write_text("{}")
    else:
        write_model(tmp_path, quantization_config={"quant_method": "fp8"})
    name = "ascend" if how == "ascend" else "fp8"
    prepared = prepare(EngineConfig(model=str(tmp_path)), NO_VARIABLES, TWO_CORES)
    assert prepared.config.quantization == name
    prepare(EngineConfig(model=str(tmp_path), load_format="dummy"), NO_VARIABLES, TWO_CORES)
