"""`qanat doctor` through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.doctor import read_options
from qanat.cli.doctor_checks.cache_work import check_cache
from qanat.cli.main import main
from qanat.cli.terminal import ENGINE_MODULES
from qanat.core.cache_folder import CacheFolder

WITHOUT_ENGINE = f"import sys; sys.modules.update(dict.fromkeys({ENGINE_MODULES!r}))\n"
"""At the start of a process: the packages of the engine cannot be found, as where only the base is installed."""


def doctor(*arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {
        name: text for name, text in os.environ.items() if not name.startswith(("QANAT_", "VLLM_", "LD_PRE"))
    }
    return subprocess.run(
        [sys.executable, "-m", "qanat", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, **(variables or {})},
        check=False,
    )


def checks_of(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    report = json.loads(result.stdout)
    assert report["can_serve"] == (result.returncode == 0)
    return {check["name"]: check for check in report["checks"]}


def test_a_machine_that_runs_these_tests_can_serve() -> None:
    result = doctor("--json")
    checks = checks_of(result)
    assert result.returncode == 0, result.stdout
    assert checks["torch"]["facts"]["version"]
    assert checks["memory"]["facts"]["available_bytes"] > 0
    assert set(checks["cores"]["facts"]["processors"]) == os.sched_getaffinity(0)
    assert sorted(checks["cores"]["facts"]["binding_order"]) == sorted(os.sched_getaffinity(0))
    assert all(check["message"] for check in checks.values())


def test_the_base_install_is_told_what_to_install(tmp_path: Path) -> None:
    """No torch, and yet everything else is looked at."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_ENGINE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = doctor(variables={"PYTHONPATH": path})
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("FAULT    engine"))
    assert "torch, tokenizers" in lines[place] and "pip install 'qanat[engine]'" in lines[place + 1]
    assert lines[-1].startswith("The engine cannot serve: 1 fault above")
    assert not any(line.split()[1:2] == ["torch"] for line in lines)
    assert any(line.startswith(("ok", "warning")) and " memory " in line for line in lines)


@pytest.mark.parametrize(
    ("variables", "name", "part"),
    [
        ({"QANAT_ISA": "avx9"}, "native kernels", "QANAT_ISA=avx9"),
        ({"QANAT_PORT": "abc"}, "variables", "QANAT_PORT: 'abc' is not a whole number"),
        ({"OMP_NUM_THREADS": "many"}, "variables", "OMP_NUM_THREADS"),
    ],
)
def test_what_serve_would_refuse_is_a_fault(variables: dict[str, str], name: str, part: str) -> None:
    result = doctor("--json", variables=variables)
    check = checks_of(result)[name]
    assert result.returncode == 1
    assert check["state"] == "fault" and part in check["message"] and check["advice"]


def test_an_allocator_that_did_not_load_and_variables_without_meaning_are_named() -> None:
    result = doctor(
        "--json",
        variables={
            "LD_PRELOAD": "/no/such/libjemalloc.so.2",
            "TASK_QUEUE_ENABLE": "1",
            "VLLM_API_KEY": "hush-hush",
        },
    )
    checks = checks_of(result)
    assert checks["allocator"]["state"] == "warning" and "jemalloc" in checks["allocator"]["message"]
    assert any(line.startswith("TASK_QUEUE_ENABLE 1 -> ") for line in checks["variables"]["more"])
    assert "VLLM_API_KEY" in checks["variables"]["facts"]["honoured"]
    assert "hush-hush" not in result.stdout


@pytest.fixture
def kept(tmp_path: Path) -> CacheFolder:
    folder = CacheFolder(tmp_path / "cache" / "packed")
    for letter in "ab":
        piece = memoryview(bytes(100_000))
        folder.store(letter * 64, [piece], [100_000], made_by="test", label="", description=None)
    return folder


def test_the_cache_is_shown_verified_and_cleared(
    kept: CacheFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QANAT_CACHE_DIR", str(kept.path.parent))
    shown = check_cache(read_options(["--cache-max-bytes", "1GiB"])[1])
    facts = shown.facts
    assert (facts["num_entries"], facts["mode"], facts["max_bytes"]) == (2, "0700", 2**30)
    assert str(kept.path) in shown.message
    assert main(["doctor", "--verify-cache"]) == 0
    assert capsys.readouterr().out == f"2 read in {kept.path}, 195.9 KiB; none damaged.\n"
    with kept.path_of("a" * 64).open("r+b") as file:
        file.write(b"X")
    assert main(["doctor", "--verify-cache", "--json"]) == 1
    problems = {each["name"]: each["problem"] for each in json.loads(capsys.readouterr().out)["entries"]}
    assert problems == {f"{'a' * 64}.packed": "its weights are damaged", f"{'b' * 64}.packed": ""}
    assert check_cache(read_options([])[1]).advice == "qanat doctor --clear-cache removes them"
    assert main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out == f"2 files removed from {kept.path}, 195.9 KiB freed.\n"
    assert main(["doctor", "--clear-cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_removed"] == 0


def test_a_cache_that_cannot_be_used_is_a_warning(kept: CacheFolder) -> None:
    kept.path.chmod(0o755)
    shown = check_cache(read_options(["--cache-dir", str(kept.path.parent)])[1])
    assert shown.state.value == "warning" and "chmod 700" in shown.message


def test_a_cache_that_cannot_be_looked_at_is_a_warning_too(tmp_path: Path) -> None:
    shown = check_cache(read_options(["--cache-dir", str(tmp_path / ("long" * 100))])[1])
    assert shown.state.value == "warning" and "cannot be looked at" in shown.message


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--clear-cache", "--verify-cache"], "leave one out"),
        (["model"], "takes flags only, got model"),
        (["--jsn"], "did you mean --json"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert part in capsys.readouterr().err
