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
