"""Profiles from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat import LLM, SamplingParams
from qanat.core.errors import ProfilerStateError

OPTIONS = {"max_model_len": 1024, "max_num_seqs": 2, "num_threads": 1}
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


def test_a_profile_of_offline_generation(demo_model: Path, tmp_path: Path) -> None:
    config = {"profiler": "ops", "torch_profiler_dir": str(tmp_path / "profiles"), "max_iterations": 3}
    with LLM(str(demo_model), profiler_config=config, **OPTIONS) as llm:
        with pytest.raises(ProfilerStateError, match="No profile"):
            llm.stop_profile()
        llm.start_profile()
        llm.generate("x", PARAMS)
        report = llm.stop_profile()
    assert (report.num_steps, report.ended_by) == (3, "max_iterations")
    assert [Path(path) for path in report.files] == list((tmp_path / "profiles").iterdir())


def test_without_a_folder_it_is_off(demo_model: Path) -> None:
    with LLM(str(demo_model), **OPTIONS) as llm, pytest.raises(ProfilerStateError, match="switched off"):
        llm.start_profile()
