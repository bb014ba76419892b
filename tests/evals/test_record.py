from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.evals.record import Record, Result, read_record

SETTINGS = {"model": "m", "seed": 0, "stop": ("a",), "tasks": {"x.jsonl": "12"}}


def result(number: int, verdict: str = "right", **rest: object) -> Result:
    return Result(task="t", item_id=str(number), digest="d", verdict=verdict, **rest)  # type: ignore[arg-type]


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    odd = result(
        1, answer="\ud800 \u2028 \n ok", tool_calls=(("f", "{}"),), chances=({"a": -0.5},), usage={"n": 1}
    )
    with Record(path, SETTINGS) as record:
        record.add(result(0))
        record.add(odd)
    with Record(path, SETTINGS) as record:
        assert list(record.results) == [("t", "0", 0), ("t", "1", 0)]
        assert record.results["t", "1", 0].chances == odd.chances
    settings, results = read_record(path)
    assert settings["stop"] == ["a"]
    assert len(results) == 2


@given(cut=st.integers(0, 400))
def test_a_record_that_was_torn_anywhere_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("r") / "r.jsonl"
    with Record(path, SETTINGS) as record:
        for number in range(3):
            record.add(result(number))
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - cut * 2)])
    with Record(path, SETTINGS) as record:
        kept = record.results
        assert list(kept) == [("t", str(number), 0) for number in range(len(kept))]
        for number in range(3):
            if ("t", str(number), 0) not in kept:
                record.add(result(number))
    assert len(read_record(path)[1]) == 3


def test_changed_settings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Record(path, SETTINGS):
        pass
    with pytest.raises(ConfigError) as caught:
        Record(path, {**SETTINGS, "seed": 3, "model": "n"})
    assert 'model was "m", is "n"; seed was 0, is 3' in caught.value.message


def test_errors_are_asked_again_and_the_last_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Record(path, SETTINGS) as record:
        record.add(result(0, "error", note="status 500"))
    with Record(path, SETTINGS) as record:
        assert record.results == {}
        record.add(result(0, "wrong"))
    assert read_record(path)[1]["t", "0", 0].verdict == "wrong"


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Record(path, SETTINGS), pytest.raises(ConfigError, match="another run is writing it"):
        Record(path, SETTINGS)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("hello", "is no record"),
        ("hello\n", "is no record"),
        ('{"a": 1}\n', "is no record"),
        ('{"record": "qanat-eval", "version": 9, "settings": {}}\n', "has the version 9"),
        ('{"record": "qanat-eval", "version": 1, "settings": {}}\n{\n', "line 2: no valid JSON"),
        ('{"record": "qanat-eval", "version": 1, "settings": {}}\n{"task": 1}\n', "line 2"),
    ],
)
def test_other_files_are_left_alone(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=told):
        Record(path, {})
    assert path.read_text() == content
    with pytest.raises(ConfigError, match="cannot be (read|written)"):
        Record(tmp_path / "none" / "r.jsonl", {})


def test_the_key_of_a_service_is_in_no_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Record(path, SETTINGS) as record:
        record.add(result(0))
    assert path.stat().st_mode & 0o777 == 0o600
    assert all("api_key" not in json.loads(line) for line in path.read_text().splitlines())
