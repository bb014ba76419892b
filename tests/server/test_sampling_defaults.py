from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qanat.core.errors import ConfigError
from qanat.server.sampling_defaults import read_sampling_defaults


def checkpoint(folder: Path, values: Any) -> str:
    (folder / "generation_config.json").write_text(values if isinstance(values, str) else json.dumps(values))
    return str(folder)


def test_api_024_the_checkpoints_recommendation_is_taken_and_said(tmp_path: Path) -> None:
    model = checkpoint(
        tmp_path, {"temperature": 0.7, "top_p": 0.8, "top_k": 1, "do_sample": True, "max_new_tokens": 5}
    )
    defaults, decisions = read_sampling_defaults("auto", None, model)
    assert defaults == {"temperature": 0.7, "top_p": 0.8, "top_k": 1}
    assert [decision.field for decision in decisions] == ["temperature", "top_p", "top_k"]


def test_api_024_it_can_be_switched_off(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, {"top_k": 1})
    assert read_sampling_defaults("vllm", None, model) == ({}, [])


def test_the_operators_values_go_before_the_file(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, {"top_k": 1, "temperature": 0.7})
    defaults, decisions = read_sampling_defaults("auto", {"top_k": 40}, model)
    assert defaults == {"top_k": 40, "temperature": 0.7}
    assert "--override-generation-config" in {d.field: d.why for d in decisions}["top_k"]


def test_another_folder_must_have_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no"):
        read_sampling_defaults(str(tmp_path), None, "/nowhere")
    assert read_sampling_defaults("auto", None, str(tmp_path)) == ({}, [])
    checkpoint(tmp_path, {"top_k": 3})
    assert read_sampling_defaults(str(tmp_path), None, "/nowhere")[0] == {"top_k": 3}


@pytest.mark.parametrize("values", ["{", {"temperature": -1}, {"top_k": "x"}], ids=str)
def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path, values: Any) -> None:
    with pytest.raises(ConfigError):
        read_sampling_defaults("auto", None, checkpoint(tmp_path, values))


FLAG = "--override-generation-config"


def test_penalties_are_defaults_too(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, {"presence_penalty": 1.5})
    defaults, decisions = read_sampling_defaults("auto", {"frequency_penalty": 0.5}, model)
    assert defaults == {"presence_penalty": 1.5, "frequency_penalty": 0.5}
    assert [decision.field for decision in decisions] == ["presence_penalty", "frequency_penalty"]


def test_known_keys_of_the_flag_that_are_not_taken_are_named(tmp_path: Path) -> None:
    override = {"max_new_tokens": 3, "num_beams": 4, "top_k": 5}
    defaults, decisions = read_sampling_defaults("auto", override, str(tmp_path))
    assert defaults == {"top_k": 5}
    said = {decision.field: decision for decision in decisions}
    assert (said[f"{FLAG}.max_new_tokens"].wanted, said[f"{FLAG}.max_new_tokens"].got) == (3, "ignored")
    assert "max_tokens" in said[f"{FLAG}.max_new_tokens"].why
    assert said[f"{FLAG}.num_beams"].got == "ignored"


def test_unknown_keys_of_the_flag_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean temperature") as caught:
        read_sampling_defaults("auto", {"temprature": 0.1}, str(tmp_path))
    assert caught.value.param == FLAG
    model = checkpoint(tmp_path, {"temprature": 0.1, "_from_model_config": True})
    assert read_sampling_defaults("auto", None, model) == ({}, [])


@pytest.mark.parametrize(
    ("file", "override", "temperature"),
    [
        ({"do_sample": False}, None, 0.0),
        ({"do_sample": False, "temperature": None}, {}, 0.0),
        ({}, {"do_sample": False}, 0.0),
        ({"do_sample": False, "temperature": 0.7}, None, 0.7),
        ({"do_sample": False}, {"temperature": 0.6}, 0.6),
        ({"do_sample": False}, {"do_sample": True}, None),
        ({"do_sample": True}, None, None),
    ],
    ids=str,
)
def test_without_sampling_the_most_likely_token_is_the_default(
    file: dict[str, Any], override: dict[str, Any] | None, temperature: float | None, tmp_path: Path
) -> None:
    defaults, decisions = read_sampling_defaults("auto", override, checkpoint(tmp_path, file))
    assert defaults.get("temperature") == temperature
    said = {decision.field: decision for decision in decisions}
    if temperature is None:
        assert not said
    else:
        assert said["temperature"].got == temperature
        assert ("do_sample" in said["temperature"].why) is (temperature == 0)


def test_a_value_that_is_not_allowed_names_where_it_stands(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, {"top_k": 3})
    with pytest.raises(ConfigError) as caught:
        read_sampling_defaults("auto", {"top_p": 7}, model)
    assert caught.value.param == FLAG
