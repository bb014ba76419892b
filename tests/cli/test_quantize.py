"""`qanat quantize` through its door."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import qanat_demo

from qanat.cli.main import main
from qanat.conversion.target import aside_of
from tests.support.startup_script import with_startup_script

DEMO = str(qanat_demo.model_path())


@pytest.fixture(scope="module")
def eight_bit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("quantize") / "w8a8"
    assert main(["quantize", DEMO, str(out), "--scheme", "w8a8"]) == 0
    return out


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_the_table_and_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "w4a8"
    assert main(["quantize", DEMO, str(out), "--scheme=w4a8", "--max-shard-size", "1MiB"]) == 0
    shown = capsys.readouterr().out
    assert "mlp.experts.gate_proj" in shown and "W4A8_DYNAMIC" in shown and "layer " in shown
    assert "244 matrices quantised, 1066 tensors in 3 files, 6.1 MiB became 2.9 MiB (47%)" in shown
    assert {path.name for path in out.iterdir()} >= {
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "quant_model_description.json",
        "quant_model_weights-00001-of-00003.safetensors",
        "quant_model_weights.safetensors.index.json",
        "quantization_report.json",
        "SHA256SUMS",
    }
    assert not aside_of(out).exists()


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", DEMO, str(tmp_path / "out"), "--scheme", "w8a8", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["scheme"], about["num_files"], about["num_matrices"]) == ("w8a8", 1, 244)
    assert about["size_bytes"] < 0.65 * about["source_bytes"]
    assert {group["part"] for group in about["errors"]} >= {"lm_head", "embed_tokens", "self_attn.q_proj"}


def test_verify(eight_bit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "--verify", str(eight_bit)]) == 0
    assert "all as they were written" in capsys.readouterr().out
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in eight_bit.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    weights = next(copy.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-3] ^= 8
    weights.write_bytes(data)
    assert main(["quantize", "--verify", str(copy)]) == 1
    shown = capsys.readouterr().out
    assert f"FAULT  {weights.name} is not what was written" in shown
    assert main(["quantize", "--verify", str(copy), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quantize", DEMO, "--scheme", "w8a8"], "takes two folders, IN and OUT, got 1"),
        (["quantize", DEMO, "out"], "--scheme is missing: w8a8 or w4a8"),
        (["quantize", DEMO, "out", "--scheme", "w2a8"], "'w2a8' is not one of w8a8, w4a8"),
        (["quantize", "nowhere", "out", "--scheme", "w8a8"], "IN nowhere is no folder of a checkpoint"),
        (["quantize", DEMO, DEMO, "--scheme", "w8a8"], "lies in the checkpoint that is read"),
        (["quantize", DEMO, "out", "--shceme", "w8a8"], "unknown flag --shceme; did you mean --scheme"),
        (["quantize", "--verify"], "--verify takes one folder"),
        (["quantize", DEMO, "out", "--scheme", "w8a8", "--calibrate", "nowhere.txt"], "cannot be read"),
    ],
)
def test_wrong_command_lines(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in said(capsys)
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_taken_and_a_source_that_is_quantised(
    eight_bit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", DEMO, str(eight_bit), "--scheme", "w8a8"]) == 2
    assert "is there and holds something" in said(capsys)
    assert main(["quantize", str(eight_bit), str(tmp_path / "out"), "--scheme", "w4a8"]) == 2
    assert "is quantised already (ascend)" in said(capsys)


@pytest.mark.slow
def test_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.jsonl"
    lines: list[object] = [
        {"messages": [{"role": "user", "content": "What is 3 + 4?"}, {"role": "assistant", "content": "7"}]},
        {"prompt": "Sort in ascending order: 8, 5, 99"},
        "Reverse the word storm.",
    ]
    texts.write_text("\n".join(json.dumps(line) for line in lines))
    arguments = [
        "quantize",
        DEMO,
        str(tmp_path / "out"),
        "--scheme",
        "w4a8",
        "--calibrate",
        str(texts),
        "--json",
    ]
    assert main(arguments) == 0
    groups = {group["part"]: group for group in json.loads(capsys.readouterr().out)["errors"]}
    # Chosen for these texts' inputs: the outputs are nearer than the weights, which they are not without.
    assert (
        groups["linear_attn.in_proj_qkv"]["output_error"]
        < 0.8 * groups["linear_attn.in_proj_qkv"]["weight_error"]
    )
    assert json.loads((tmp_path / "out" / "quantization_report.json").read_text())["is_calibrated"] is True
    texts.write_text('{"question": 1}\n')
    assert main([*arguments[:2], str(tmp_path / "other"), *arguments[3:]]) == 2
    assert "line 1: give messages, prompt or text" in said(capsys)


def command(out: Path) -> list[str]:
    arguments = ["quantize", DEMO, str(out), "--scheme", "w8a8", "--max-shard-size", "256KiB"]
    return [sys.executable, "-m", "qanat", *arguments]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


DYING = """
import os
import signal
from qanat.conversion.journal import Workplace

plain_record = Workplace.record

def record_and_die(self, *arguments):
    plain_record(self, *arguments)
    if any(Path("ASIDE").glob("*-00003-of-*.safetensors")):
        os.kill(os.getpid(), signal.SIGKILL)

Workplace.record = record_and_die
"""
"""Kills the process as soon as its third file is there."""


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    out, script = tmp_path / "out", tmp_path / "script"
    script.mkdir()
    environment = os.environ | with_startup_script(script, DYING.replace("ASIDE", str(aside_of(out))))
    killed = subprocess.run(command(out), env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL and not out.exists()
    done = subprocess.run(command(out), check=True, capture_output=True, text=True)
    assert "goes on with an interrupted conversion" in done.stderr
    assert contents(out) == contents(tmp_path / "whole")
    assert main(["quantize", "--verify", str(out)]) == 0


@pytest.mark.slow
def test_a_disk_that_takes_no_more_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    """The limit of a file's size stands in for a full disk: both end the same write."""
    out = tmp_path / "out"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200 << 10, 200 << 10))

    failed = subprocess.run(command(out), preexec_fn=limit, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "cannot be written: File too large" in failed.stderr and "goes on from there" in failed.stderr
    assert not out.exists()
    subprocess.run(command(out), check=True, capture_output=True)
    assert main(["quantize", "--verify", str(out)]) == 0
