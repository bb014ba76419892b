from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qanat.cli.main import main
from qanat.deploy.plan.files import encode_plan
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(encode_plan(two_nodes()), encoding="utf-8")
    return path


def render(*arguments: str | Path) -> int:
    return main(["deploy", "render", *(str(argument) for argument in arguments)])


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_plan_becomes_a_folder(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deployment"
    assert render(plan_file, folder) == 0
    output = capsys.readouterr()
    assert "new      nodes/server-1/serve.sh" in output.out
    assert (
        f"set in {folder}/env.sh what the plan does not say: ADDRESS_SERVER_0, INTERFACE_SERVER_0"
        in output.err
    )
    expected = {"env.sh", "plan.yaml", "deployment.json", "README.md", "checks/verify.sh"}
    expected |= {f"nodes/server-{n}/{s}.sh" for n in (0, 1) for s in ("host", "container", "serve", "stop")}
    assert expected <= files_of(folder)
    assert os.access(folder / "nodes/server-0/container.sh", os.X_OK)
    assert (folder / "plan.yaml").read_text(encoding="utf-8") == plan_file.read_text(encoding="utf-8")


def test_a_folder_that_was_rendered_renders_again(plan_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deployment"
    render(plan_file, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert render(folder / "plan.yaml", folder) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_json_says_what_became_of_each_file(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deployment"
    assert render(plan_file, folder, "--json", "--dry-run") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_dry_run"] and report["folder"] == str(folder)
    assert {one["state"] for one in report["files"]} == {"new"}
    assert not folder.exists()


def test_edits_of_env_sh_are_kept_and_told(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deployment"
    render(plan_file, folder)
    env = folder / "env.sh"
    env.write_text(env.read_text().replace("ADDRESS_SERVER_0=''", "ADDRESS_SERVER_0=192.0.2.1"))
    capsys.readouterr()
    assert render(plan_file, folder) == 0
    output = capsys.readouterr()
    assert "kept     env.sh  (edited by hand)" in output.out
    assert "ADDRESS_SERVER_0" not in output.err and "ADDRESS_SERVER_1" in output.err
    assert "ADDRESS_SERVER_0=192.0.2.1\n" in env.read_text()


def test_an_edited_script_asks_for_overwrite(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deployment"
    render(plan_file, folder)
    (folder / "nodes/server-0/serve.sh").write_text("edited\n")
    assert render(plan_file, folder) == 2
    assert "nodes/server-0/serve.sh" in capsys.readouterr().err
    assert render(plan_file, folder, "--overwrite") == 0
    assert "vllm serve" in (folder / "nodes/server-0/serve.sh").read_text()


def test_languages_and_installations(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(encode_plan(single_node()), encoding="utf-8")
    render(path, tmp_path / "en")
    render(path, tmp_path / "zh", "--language", "zh")
    render(path, tmp_path / "source", "--install", "source")
    english, chinese = ((tmp_path / one / "README.md").read_text(encoding="utf-8") for one in ("en", "zh"))
    assert english != chinese and english.isascii() and not chinese.isascii()
    assert {"install/source.sh", "nodes/server-0/start.sh"} <= files_of(tmp_path / "source")
    assert "nodes/server-0/container.sh" not in files_of(tmp_path / "source")


def test_flags_make_the_plan_too(tmp_path: Path) -> None:
    folder = tmp_path / "deployment"
    wish = ["--model", "Qwen3.5-35B-A3B", "--hardware", "atlas-800-a3", "--served-model-name", "mine"]
    assert render(folder, *wish) == 0
    assert "--served-model-name mine" in (folder / "nodes/server-0/serve.sh").read_text()


def test_warnings_of_the_plan_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(encode_plan(disaggregated()), encoding="utf-8")
    assert render(path, tmp_path / "deployment") == 0
    assert "note: The example proxy neither checks" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan.yaml deployment", "deployment"])
def test_the_folder_lints_clean_from_the_command_line(
    plan_file: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wish = [] if " " in command else ["--model", "Qwen3.5-35B-A3B", "--hardware", "atlas-800-a3"]
    assert render(*command.split(), *wish) == 0
    assert main(["deploy", "lint", "deployment"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a plan and the folder"),
        (["{plan}"], "alone is not enough"),
        (["a", "b", "c"], "name a plan and the folder"),
        (["no-such.yaml", "deployment"], "no-such.yaml cannot be read"),
        (["{binary}", "deployment"], "no text in UTF-8"),
        (["{other}", "deployment"], "not a plan of"),
        (["{plan}", "{plan}"], "is a file; name a folder"),
        (["{plan}", "deployment", "--model", "Qwen3-32B"], "--model is part of the plan"),
        (["deployment", "--model", "Qwen3-32B"], "--hardware is missing"),
        (["{plan}", "deployment", "--language", "fr"], "en, zh"),
        (["{plan}", "deployment", "--instull", "source"], "--install"),
        (["{plan}", "/proc/deployment"], "cannot be written"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str],
    said: str,
    plan_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x00")
    (tmp_path / "other").write_text("model: a\n")
    places = {"plan": str(plan_file), "binary": str(tmp_path / "binary"), "other": str(tmp_path / "other")}
    code = render(*(argument.format(**places) for argument in arguments))
    message = capsys.readouterr().err
    assert code == 2 and said in message


def test_help_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "render", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:\n  qanat deploy render" in text
    flags = (
        "--language",
        "--install",
        "--dry-run",
        "--overwrite",
        "--json",
        "--model",
        "--hardware",
        "--wish",
    )
    assert all(flag in text for flag in flags)


def test_it_loads_neither_torch_nor_numpy(plan_file: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from qanat.cli.main import main; main(['deploy', 'render', *sys.argv[1:]]); "
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(plan_file), str(tmp_path / "deployment")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("journal", ['{"old": {}, "new": {"../victim/x": ""}}', '{"x": 1}'])
def test_a_journal_that_nobody_wrote_is_an_error_of_the_input(
    journal: str, plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/x").write_text("precious")
    staging = tmp_path / "deployment/.qanat-render.new"
    staging.mkdir(parents=True)
    (staging / "journal.json").write_text(journal)
    assert render(plan_file, tmp_path / "deployment") == 2
    assert "journal.json is damaged" in capsys.readouterr().err
    assert (tmp_path / "victim/x").read_text() == "precious"
    assert [path.name for path in (tmp_path / "deployment").iterdir()] == [staging.name]
