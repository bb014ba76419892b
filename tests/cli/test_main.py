from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from qanat import __version__
from qanat.cli.main import COMMANDS, main
from tests.config.tiny_folder import write_model


def test_help_names_every_command_and_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(f"  {name}" in text for name in COMMANDS)
    assert "Examples:" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_complete_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Examples:\n  qanat {name}" in text
    assert name in ("bench", "deploy", "doctor", "eval", "quantize", "router", "top") or (
        "--max-num-batched-tokens" in text and "--config" in text
    )
    assert main([name, "model", "-h"]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"qanat {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_commands_and_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("serve", "plan", "chat", "max-num-batched-tokens", "no-thinking", "tensor-parallel-size"):
        assert word in script


def test_a_completion_script_works_in_bash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=60).returncode == 0
    complete = 'COMP_WORDS=(qanat serve --max-num-b); COMP_CWORD=2; _shtab_qanat; echo "${COMPREPLY[@]}"'
    result = subprocess.run(
        ["bash", "-c", f"{script}\n{complete}"], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.split() == ["--max-num-batched-tokens"]


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sevre"])
    assert caught.value.code == 2
    assert "'serve'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "plan"])
@pytest.mark.parametrize(
    ("flag", "value", "word"),
    [
        ("--chat-template", "{% if %}", "does not compile"),
        ("--chat-template", "/no/such/file.jinja", "cannot be read"),
        ("--default-chat-template-kwargs", '{"messages": []}', "must not set messages"),
        ("--default-chat-template-kwargs", '{"enable_thinking": "no"}', "true or false"),
    ],
)
def test_template_settings_are_checked_before_the_model_is_loaded(
    command: str, flag: str, value: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder has no weights, which loading would find first."""
    write_model(tmp_path / "model")
    assert main([command, "--model", str(tmp_path / "model"), flag, value]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"qanat {command}: error: ") and word in error


def test_importing_the_command_line_loads_no_torch() -> None:
    code = (
        "import sys; import qanat.cli.main, qanat.cli.serve, qanat.cli.plan, qanat.cli.chat;"
        "bad = {'torch', 'numpy', 'transformers', 'starlette', 'uvicorn', 'zmq', 'yaml', 'rich'} & set(sys.modules);"
        "sys.exit(', '.join(sorted(bad)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_help_answers_in_a_small_multiple_of_the_interpreters_own_start() -> None:
    """The limit is 0.3 s; measured against a bare interpreter, which takes a tenth of it, so that load cancels out."""

    def least_s(*arguments: str) -> float:
        """Of the processors, as a wait for them is the longer, the longer a process runs."""
        times = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], capture_output=True, check=True, timeout=60)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    assert least_s("-m", "qanat", "--help") < 12 * least_s("-c", "import argparse")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["serve", "--bogus-flag"], "unknown flag --bogus-flag"),
        (["serve", "m", "n"], "one model can be named, got m and n"),
        (["serve", "m", "--model", "n"], "named twice: m and --model n"),
        (["serve", "--port", "x"], "--port: 'x' is not a whole number"),
        (["serve", "--compilation-config", "{'a': 1}"], "--compilation-config: invalid JSON"),
        (["serve", "--config", "/no/file.yaml"], "--config /no/file.yaml: cannot be read"),
        (["serve", "/no/such/model"], "--model /no/such/model: there is no such folder"),
        (["plan", "--available-memory", "much"], "--available-memory: 'much' is not a size"),
        (["plan", "--max-model-len", "0"], "--max-model-len: 0 is too small"),
        (["chat", "--temperature", "hot"], "--temperature: 'hot' is not a number"),
        (["chat", "--url", "nowhere", "hi"], "--url nowhere is no address"),
        (["chat", "--port", "1"], "unknown flag --port"),
    ],
)
def test_bad_values_exit_with_2_and_name_the_flag(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"qanat {arguments[0]}: error: ")
    assert part in captured.err
    assert captured.err.count("\n") == 1


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == 0
    return capsys.readouterr().out


def test_service_links_do_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trial case OPS-004."""
    monkeypatch.setenv("QANAT_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("QANAT_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("QANAT_PORT_8000_TCP", "tcp://10.0.0.1:8000")
    assert plan(capsys, str(write_model(tmp_path / "m"))).count("Kubernetes") == 1


def test_the_model_on_the_command_line_goes_before_variable_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "m")
    file = tmp_path / "settings.yaml"
    file.write_text("model: /from/file\n")
    monkeypatch.setenv("QANAT_MODEL", "/from/variable")
    ignored = f"  QANAT_MODEL /from/variable, {file}: model /from/file -> ignored: {model} goes before it"
    assert ignored in plan(capsys, str(model), "--config", str(file))
    assert main(["plan", "--config", str(file)]) == 2
    assert "--model /from/variable: there is no such folder" in capsys.readouterr().err


def test_variables_and_file_reach_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("max-num-seqs: 5\nmax_model_len: 4k\nseed: 3\n")
    monkeypatch.setenv("QANAT_CONFIG", str(file))
    monkeypatch.setenv("QANAT_MAX_NUM_SEQS", "6")
    text = plan(capsys, str(write_model(tmp_path / "m")), "--seed", "1")
    rows = {line.split()[0]: line.split()[1] for line in text.splitlines() if line.startswith("  --")}
    assert (rows["--max-num-seqs"], rows["--max-model-len"], rows["--seed"]) == ("6", "4000", "1")
    assert "QANAT_MAX_NUM_SEQS goes before it" in text


@pytest.mark.parametrize("text", ["[1, 2]", "port", "port: [", "- port: 1"])
def test_a_settings_file_must_be_a_mapping(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert main(["serve", "--config", str(file)]) == 2
    assert f"--config {file}: " in capsys.readouterr().err


def test_an_empty_settings_file_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("# nothing yet\n")
    assert main(["serve", "/no/model", "--config", str(file)]) == 2
    assert "/no/model" in capsys.readouterr().err


def test_the_module_of_vllm_starts_the_same_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "qanat.entrypoints.openai.api_server", "--model", "/no/model", "-tp", "8"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert result.stderr == "qanat serve: error: --model /no/model: there is no such folder.\n"
