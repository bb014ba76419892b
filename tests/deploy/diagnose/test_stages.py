"""Stages of a start, read from its log."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.diagnose.stages import ORDER, Stage, StageReader, match_stage, stage_patterns
from qanat.deploy.knowledge.kinds.logs import LogStage

ENTRIES = [entry for entry, _ in stage_patterns()]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_line_shows_its_stage_and_its_near_miss_does_not(entry: LogStage) -> None:
    found = match_stage(entry.example)
    assert found is not None and found[0] is entry
    missed = match_stage(entry.near_miss)
    assert missed is None or missed[0] is not entry
    assert not re.search(entry.pattern, entry.near_miss)
    assert any(literal in entry.example for literal in entry.literals)


def test_every_stage_has_a_line() -> None:
    assert {entry.stage for entry in ENTRIES} == set(ORDER)


def test_a_start_goes_through_its_stages() -> None:
    reader = StageReader()
    reached = [reader.feed(entry.example) for entry in ENTRIES]
    names = [stage.name for stage in reached if stage is not None]
    assert list(dict.fromkeys(names)) == list(ORDER)
    assert reader.current is not None and reader.current.is_ready


def test_a_rank_that_lags_behind_changes_nothing() -> None:
    reader = StageReader()
    assert reader.feed("GPU KV cache size: 412,672 tokens") == Stage("cache", "412,672 tokens", True)
    assert reader.feed("Loading weights took 12.5 seconds") is None
    assert reader.feed("nothing of note") is None
    assert reader.feed("GPU KV cache size: 412,672 tokens") is None


def test_progress_bars_give_their_last_frame() -> None:
    bar = "Loading safetensors checkpoint shards:  {0}% Completed | {1}/4 [00:01<00:04]"
    frames = "\r".join(bar.format(25 * done, done) for done in range(4))
    stage = StageReader().feed(f"\x1b[32m{frames}\x1b[0m\r\n")
    assert stage is not None and stage.detail == "3 of 4 files"


def test_a_second_start_in_one_log_begins_anew() -> None:
    reader = StageReader()
    reader.feed("vLLM API server version 0.18.0")
    reader.feed("Application startup complete.")
    stage = reader.feed("vLLM API server version 0.18.0")
    assert stage == Stage("start", "vLLM 0.18.0", is_new_start=True)
    assert not stage.is_ready


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    StageReader().feed(text)


def test_capture_sizes_stand_in_the_engines_configuration() -> None:
    line = (
        "Initializing a V1 LLM engine (v0.29.0) with config: model='/a', speculative_config=None, "
        "compilation_config={'mode': 3, 'cudagraph_mode': <CUDAGraphMode.FULL_DECODE_ONLY: (2, 0)>, "
        "'cudagraph_capture_sizes': [1, 2, 4, 8], 'max_cudagraph_capture_size': 8}"
    )
    found = match_stage(line)
    assert found is not None and found[1].groupdict() == {"vllm": "0.29.0", "capture_sizes": "1, 2, 4, 8"}
    bare = match_stage(line.partition(", compilation_config")[0])
    assert bare is not None and bare[1].groupdict() == {"vllm": "0.29.0", "capture_sizes": None}
