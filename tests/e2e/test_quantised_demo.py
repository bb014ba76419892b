"""The demo model quantised at load and by `qanat quantize`: the same weights, so the same tokens."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from qanat import LLM, SamplingParams
from qanat.cli.main import main

PROMPTS = [[{"role": "user", "content": f"What is {number} + 58?"}] for number in (3, 47, 219, 388)]
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def answers(folder: Path, **options: Any) -> list[tuple[Any, Any]]:
    params = SamplingParams(temperature=0, max_tokens=48, logprobs=2)
    with LLM(str(folder), max_model_len=512, max_num_seqs=4, num_threads=1, **options) as llm:
        outputs = [result.outputs[0] for result in llm.chat(PROMPTS, params)]
    return [(output.token_ids, output.logprobs) for output in outputs]


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_a_written_checkpoint_answers_like_the_scheme_at_load(
    scheme: str, demo_model: Path, tmp_path: Path
) -> None:
    assert (
        main(["quantize", str(demo_model), str(tmp_path / "out"), "--scheme", scheme, "--num-threads", "1"])
        == 0
    )
    at_load = answers(demo_model, quantization=scheme)
    assert answers(tmp_path / "out") == at_load
    assert at_load != answers(demo_model), "and not like the float model, to the last bit"


def accuracy() -> ModuleType:
    """`benchmarks/accuracy.py` as a module."""
    spec = importlib.util.spec_from_file_location("accuracy", BENCHMARKS / "accuracy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_few_answers_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gates need thousands of items; of a few hundred next to none may change."""
    figures = tmp_path / "figures.json"
    code = accuracy().main(["--items", "40", "--json", str(figures)])
    rows = json.loads(figures.read_text())
    assert [row["scheme"] for row in rows] == ["w8a8", "w4a8"]
    assert code == (0 if all(row["is_met"] for row in rows) else 1)
    for row, most in zip(rows, (2, 5), strict=True):
        assert row["items"] == 320 and row["right_before_percent"] > 96
        assert row["lost"] <= most, row
    assert "at most" in capsys.readouterr().out
