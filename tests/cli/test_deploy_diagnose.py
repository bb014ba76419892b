"""`qanat deploy diagnose` as a user calls it."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from qanat.cli.main import main

HERE = Path(__file__).parents[1] / "deploy/diagnose"
LOGS = HERE / "logs"
EXPECTED = yaml.safe_load((HERE / "expected.yaml").read_text())


def diagnose(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["deploy", "diagnose", *arguments])
    return code, capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out = diagnose(capsys, *arguments, "--json")
    return code, json.loads(out)


def names(report: Any, severity: str, is_consequence: bool = False) -> list[str]:
    return [
        problem["signature"] or "unknown"
        for problem in report["problems"]
        if problem["severity"] == severity and problem["is_consequence"] is is_consequence
    ]


def test_every_log_is_expected() -> None:
    assert {path.name for path in LOGS.glob("*.log")} == set(EXPECTED)
    assert len(EXPECTED) >= 15


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_is_told_as_reasoned(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = EXPECTED[name]
    code, report = as_json(capsys, str(LOGS / name))
    assert code == wanted["exit"]
    assert report["is_ready"] is wanted["ready"]
    assert (report["stages"][-1]["stage"] if report["stages"] else None) == wanted["stage"]
    assert report["version"] == wanted["version"]
    assert report["num_starts"] == wanted["starts"]
    assert names(report, "error") == wanted.get("faults", [])
    assert names(report, "error", is_consequence=True) == wanted.get("consequences", [])
    assert names(report, "warning") == wanted.get("warnings", [])
    found = [one["rule"] for one in report["settings"] if one["severity"] != "info"]
    assert found == wanted.get("settings", [])
    if "faults" in wanted:
        first = report["problems"][0]
        assert first["line"] == wanted["line"]
        assert first["process"] == wanted.get("process", "")
        assert first["num_seen"] == wanted["num_seen"]


def test_text_puts_the_first_cause_before_what_followed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = diagnose(capsys, str(LOGS / "rank5_first.log"))
    assert code == 1
    order = [
        out.index(text) for text in ("First fault", "L022 [Worker_TP5]", "What followed", "L044", "L055")
    ]
    assert order == sorted(order)
    assert "7 times, also Worker_TP1" in out and "remedy: Lower --gpu-memory-utilization" in out


def test_logs_of_eight_ranks_are_merged_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(LOGS / f"ranks/rank_{rank}.log") for rank in range(8)]
    code, report = as_json(capsys, *files)
    first = report["problems"][0]
    assert code == 1 and first["signature"] == "L022"
    assert first["file"].endswith("rank_5.log") and first["process"] == "Worker_TP5"
    assert report["problems"][1]["signature"] == "L044"
    assert len(report["problems"][1]["processes"]) == 7


def test_what_nobody_has_described_is_shown_without_a_cause(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = diagnose(capsys, str(LOGS / "unknown_fault.log"))
    assert code == 1
    assert "IndexError: index 40960 is out of bounds" in out and "cause: not known" in out
    assert "rotary_embedding.py" in out


def test_figures_and_settings_are_read_out_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = as_json(capsys, str(LOGS / "healthy_start.log"))
    facts = {name: fact["value"] for name, fact in report["facts"].items()}
    assert facts["vllm"] == "0.18.0" and facts["kv_tokens"] == "1,540,096" and facts["world"] == "8"
    assert (
        facts["capture_s"] == "23" and facts["graphs_gib"] == "0.41" and facts["max_concurrency"] == "47.00"
    )
    _, report = as_json(capsys, str(LOGS / "align_mode.log"))
    assert report["facts"]["block_tokens"]["value"] == "2048"
    finding = next(one for one in report["settings"] if one["rule"] == "HYB002")
    assert finding["line"] == 3


def test_ops_012_a_message_about_storage_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = diagnose(capsys, str(LOGS / "streams.log"))
    assert "no disk is meant" in out and "Capture fewer sizes" in out and "GRA008" in out


def test_a_fault_of_an_earlier_start_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = diagnose(capsys, str(LOGS / "restart.log"))
    assert "First fault (of an earlier start)" in out
    assert "possible model len 65536" in out


def test_secrets_in_a_log_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ([], ["--json"]):
        _, out = diagnose(capsys, str(LOGS / "secrets.log"), *form)
        assert "verysecret" not in out


def test_image_says_which_version_ran(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = as_json(capsys, str(LOGS / "healthy_start.log"), "--image", "v0.23.0-a3")
    assert report["version"] == "0.23.0" and report["version_from"] == "as given"
    assert main(["deploy", "diagnose", str(LOGS / "healthy_start.log"), "--image", "latest"]) == 2


def test_packed_files_standard_input_and_utf_16(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (LOGS / "atb.log").read_text()
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert names(as_json(capsys, str(packed))[1], "error") == ["L025"]
    (tmp_path / "utf16.log").write_bytes(text.encode("utf-16"))
    assert names(as_json(capsys, str(tmp_path / "utf16.log"))[1], "error") == ["L025"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, report = as_json(capsys, "-")
    assert code == 1 and report["sources"][0]["name"] == "<stdin>"


def test_a_damaged_packed_file_is_read_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress((LOGS / "atb.log").read_bytes())[:-12])
    code, out = diagnose(capsys, str(packed))
    assert "damaged" in out and code in (0, 1)


def test_the_log_of_a_container(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "docker"
    log = LOGS / "dropped_sizes.log"
    tool.write_text(
        f'#!/bin/sh\ncase "$1 $2" in\n"logs qwen") cat {log} ;;\n'
        '"inspect --format") echo quay.io/ascend/vllm-ascend:v0.18.0rc1-a3 ;;\n*) exit 1 ;;\nesac\n'
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    code, report = as_json(capsys, "--docker", "qwen")
    assert code == 1 and report["version"] == "0.18.0rc1" and names(report, "warning") == ["L004"]
    assert main(["deploy", "diagnose", "--docker", "other"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such.log"],
        [str(LOGS)],
        [str(LOGS / "atb.log"), "--interval-s", "0"],
        [str(LOGS / "atb.log"), "--unknown"],
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "diagnose", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_loads_neither_linter_nor_knowledge() -> None:
    code = "import sys, qanat.cli.deploy_actions.diagnose; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
