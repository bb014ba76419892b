"""`qanat deploy plan` as a user meets it: flags, wish files, questions, what is written and refused."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qanat.cli.main import main
from qanat.deploy.plan.files import decode_plan

BASE = ["deploy", "plan", "--model", "Qwen3.5-397B-A17B", "--hardware", "atlas-800-a3"]
ISSUE = [*BASE, "--weights", "w8a8-mtp", "--nodes", "1", "--scenario", "low-latency"]
ISSUE += ["--max-model-len", "133000", "--concurrency", "64"]


def test_the_example_of_the_issue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ISSUE) == 0
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert first == "Qwen3.5-397B-A17B in w8a8 on A3: single-node, low-latency"
    for part in (
        "quay.io/ascend/vllm-ascend:v0.23.0.post1-a3",
        "--tensor-parallel-size 16",
        "--max-num-seqs 64",
        '\'{"method": "qwen3_5_mtp", "num_speculative_tokens": 3}\'',
        "HCCL_BUFFSIZE=",
        "Memory of one NPU: 61.0 GiB",
        "in budget",
        "on top",
        "head-room",
        "longest request 262144 tokens",
        "Choices",
        "read in source]",
        "Changes with:",
        "Warnings",
    ):
        assert part in out
    assert out.index("Flags") < out.index("Memory of one NPU") < out.index("Choices") < out.index("Warnings")
    assert len(out[: out.index("\nMemory of one NPU")].splitlines()) <= 50  # one screen
    assert all(len(line) <= 110 for line in out.splitlines() if not line.startswith("  --"))


def test_json_is_the_plan_that_output_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.yaml"
    assert main([*ISSUE, "--json", "--output", str(target)]) == 0
    captured = capsys.readouterr()
    assert "qanat deploy render" in captured.err
    plan = decode_plan(target.read_text(encoding="utf-8"), "plan.yaml")
    assert json.loads(captured.out)["roles"][0]["flags"] == plan.role("server").flags
    assert plan.wish.max_model_len == 133000
    before = target.read_bytes()
    assert main([*ISSUE, "--output", str(target)]) == 0
    assert target.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["plan.yaml"]


def test_output_keeps_the_mode_and_replaces_whole_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "plan.yaml"
    target.write_text("colour: red")
    target.chmod(0o640)
    assert main([*ISSUE, "--output", str(target)]) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert "colour" not in target.read_text(encoding="utf-8")
    assert main([*ISSUE, "--output", str(tmp_path / "no" / "plan.yaml")]) == 2
    assert "--output" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_to_a_folder_without_rights_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    try:
        assert main([*ISSUE, "--output", str(tmp_path / "plan.yaml")]) == 2
    finally:
        tmp_path.chmod(0o700)
    assert "cannot be written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_wish_file_and_flags_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wish.yaml"
    file.write_text(
        "model: Qwen3-32B\nhardware: A3\nweights: w8a8\nmax-model-len: 8192\nscenario: high-throughput\n"
        "overrides: {seed: 7}\n"
    )
    assert main(["deploy", "plan", "--wish", str(file), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["wish"]["scenario"] == "high-throughput"
    assert first["roles"][0]["flags"]["max-model-len"] == 8192
    assert first["roles"][0]["flags"]["seed"] == 7
    assert main(["deploy", "plan", "--wish", str(file), "--max-model-len", "4096", "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["roles"][0]["flags"]["max-model-len"] == 4096


def test_machines_may_be_left_to_the_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wish.yaml"
    file.write_text("model: Qwen3-8B\n")
    assert main(["deploy", "plan", "--wish", str(file), "--hardware", "A2"]) == 0
    assert main(["deploy", "plan", "--wish", str(file)]) == 2
    assert "--hardware is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[1, 2]", "must hold a wish"),
        ("model: {", "no valid YAML"),
        ("model: Qwen3-8B\nhardware: A2\ncolour: red", "colour"),
        ("model: Qwen3-8B\nhardware: A2\nnodes: two", "nodes"),
        ("model: Qwen3-8B\nhardware: A2\nscenario: fast", "scenario"),
        ("\x00", "no valid YAML"),
    ],
)
def test_a_wrong_wish_file_is_named(
    text: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wish.yaml"
    file.write_text(text)
    assert main(["deploy", "plan", "--wish", str(file)]) == 2
    error = capsys.readouterr().err
    assert "wish.yaml" in error and part in error


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["deploy", "plan"], "--model is missing"),
        (["deploy", "plan", "Qwen3-8B"], "--model"),
        ([*BASE, "--scenario", "fast"], "low-latency"),
        ([*BASE, "--nodes", "two"], "--nodes"),
        ([*BASE, "--overrides", "max-num-seqs"], "NAME=VALUE"),
        ([*BASE, "--wish", "no-such-file"], "cannot be read"),
        ([*BASE, "--colour", "red"], "--colour"),
        ([*BASE, "--topology", "pd", "--nodes", "1"], "qanat deploy plan"),
    ],
)
def test_what_is_wrong_ends_with_2_and_says_what_to_change(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert part in captured.err and not captured.out
    assert "Traceback" not in captured.err


def test_an_impossible_wish_names_commands_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    arguments = ["deploy", "plan", "--model", "Qwen3.5-397B-A17B", "--hardware", "A2", "--weights", "bf16"]
    assert main([*arguments, "--nodes", "1"]) == 2
    error = capsys.readouterr().err
    proposed = [line.strip() for line in error.splitlines() if line.strip().startswith("qanat deploy plan")]
    assert "GiB" in error and proposed
    for command in proposed:
        assert main(shlex.split(command)[1:]) == 0
        capsys.readouterr()


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_questions_through_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Model, machine, weights, nodes, scenario, topology, context, requests."""
    answer(monkeypatch, "Qwen3.5-35B-A3B\nA3\nw8a8\n1\nlow-latency\n\n16384\n8\n")
    assert main(["deploy", "plan", "--interactive", "--json"]) == 0
    captured = capsys.readouterr()
    wish = json.loads(captured.out)["wish"]
    assert (wish["model"], wish["hardware"], wish["weights"]) == ("Qwen3.5-35B-A3B", "A3", "w8a8")
    assert (wish["nodes"], wish["scenario"], wish["topology"]) == (1, "low-latency", None)
    assert (wish["max_model_len"], wish["concurrency"]) == (16384, 8)
    assert "The same without questions: qanat deploy plan --model Qwen3.5-35B-A3B" in captured.err


def test_empty_answers_take_the_defaults_and_flags_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "\n" * 8)
    assert main([*BASE, "--interactive", "--scenario", "long-context", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["wish"]["scenario"] == "long-context"
    assert "Machine or chip" not in captured.err and "What it is for" not in captured.err


def test_wrong_answers_are_asked_again_and_then_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "Llama\nQwen3-8B\nA3\n\nmany\n1\n\n\n\n\n")
    assert main(["deploy", "plan", "--interactive"]) == 0
    error = capsys.readouterr().err
    assert "no known model" in error and "'many' is neither auto" in error
    answer(monkeypatch, "Llama\n" * 20)
    assert main(["deploy", "plan", "--interactive"]) == 2
    assert "no usable answer after 5 tries" in capsys.readouterr().err
    answer(monkeypatch, "")
    assert main(["deploy", "plan", "--interactive"]) == 2
    assert "input ended" in capsys.readouterr().err


def test_the_real_process_reads_a_pipe_and_needs_neither_torch_nor_a_terminal(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from qanat.cli.main import main\n"
        "sys.exit(main(['deploy', 'plan', '--interactive', '--output', 'plan.yaml']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="Qwen3-32B\nA2\n\n\n\n\n\n\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Qwen3-32B in w8a8 on A2")
    assert decode_plan((tmp_path / "plan.yaml").read_text(encoding="utf-8"), "plan.yaml").chip == "A2"


def test_help_names_every_field_of_a_wish(capsys: pytest.CaptureFixture[str]) -> None:
    import msgspec

    from qanat.deploy.plan.wish import Wish

    assert main(["deploy", "plan", "--help"]) == 0
    out = capsys.readouterr().out
    for field in msgspec.structs.fields(Wish):
        assert "--" + field.name.replace("_", "-") in out
    assert "Examples:" in out


def test_addresses_that_nobody_said_and_a_single_request_are_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*BASE, "--hardware", "A2", "--weights", "w8a8", "--nodes", "2", "--concurrency", "1"]) == 0
    out = capsys.readouterr().out
    assert "--data-parallel-address ADDRESS_OF_server-0" in out and "--data-parallel-address ''" not in out
    assert main([*BASE, "--concurrency", "1", "--scenario", "low-latency"]) == 0
    assert "; 1 request, up to" in capsys.readouterr().out


def test_lists_are_overrides_in_words_and_in_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wish.yaml"
    file.write_text("overrides: {compilation-config.cudagraph_capture_sizes: [4, 8]}\n", encoding="utf-8")
    words = ["--overrides", "compilation-config.cudagraph_capture_sizes=[4, 8]"]
    for given in (["--wish", str(file)], words):
        assert main([*ISSUE, *given, "--json"]) == 0
        flags = json.loads(capsys.readouterr().out)["roles"][0]["flags"]
        assert flags["compilation-config"]["cudagraph_capture_sizes"] == [4, 8]


def test_an_address_to_listen_on_is_refused_rather_than_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ISSUE, "--overrides", "host=127.0.0.1"]) == 2
    err = capsys.readouterr().err
    assert "host" in err and "0.0.0.0" in err


def test_ops_weights_of_a_310p_keep_their_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["deploy", "plan", "--model", "Qwen3-32B", "--hardware", "310P", "--json"]
    assert main(arguments) == 0
    flags = json.loads(capsys.readouterr().out)["roles"][0]["flags"]
    assert (flags["dtype"], flags["load-format"]) == ("float16", "sharded_state")
    assert main([*arguments, "--weights", "w8a8sc", "-tp", "2"]) == 2
    assert "cut for 4 ranks" in capsys.readouterr().err
