from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from qanat.cli.main import main

WRONG = "#!/bin/bash\nvllm serve ./Qwen3-32B –port 8000 --max-model-lenn 4096\n"
RIGHT = "#!/bin/bash\nvllm serve ./Qwen3-32B --port 8000 --max-model-len 4096\n"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(WRONG, encoding="utf-8")
    return path


def lint(*arguments: str | Path) -> int:
    return main(["deploy", "lint", *(str(argument) for argument in arguments)])


def test_findings_are_told_with_an_exit_code(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(wrong, "--image", "v0.18.0rc1-a3") == 1
    text = capsys.readouterr().out
    assert f"{wrong}:2:24: error CLI001: " in text
    assert "--max-model-len" in text and "checked for 0.18.0rc1" in text


def test_a_right_script_leaves_zero(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(RIGHT)
    assert lint(tmp_path / "run.sh") == 0


def test_json_and_sarif_are_json(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(wrong, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert {"CLI001"} <= {finding["rule"] for finding in report["findings"]}
    assert lint(wrong, "--sarif") == 1
    sarif = json.loads(capsys.readouterr().out)
    assert {"CLI001"} <= {result["ruleId"] for result in sarif["runs"][0]["results"]}


def test_fix_writes_what_is_safe_and_reports_the_rest(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lint(wrong, "--fix", "--json") == 1
    output = capsys.readouterr()
    assert " --port 8000" in wrong.read_text(encoding="utf-8")
    assert "CLI001" not in {finding["rule"] for finding in json.loads(output.out)["findings"]}
    assert "files changed: 1" in output.err
    before = wrong.read_text(encoding="utf-8")
    lint(wrong, "--fix")
    assert wrong.read_text(encoding="utf-8") == before


def test_fix_goes_on_until_nothing_safe_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.sh"
    path.write_text("vllm serve m –max_model_len 8 –port 1\nsysctl vm.swappiness=0\n", encoding="utf-8")
    assert lint(path, "--fix") == 0
    assert path.read_text(encoding="utf-8") == (
        "vllm serve m --max-model-len 8 --port 1\nsysctl -w vm.swappiness=0\n"
    )
    assert "files changed: 1" in capsys.readouterr().err


def test_fix_leaves_files_alone_that_were_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "env.sh").write_text("export TASK_QUEUE_ENABLE=2\n")
    (tmp_path / "run.sh").write_text("source env.sh\nvllm serve Qwen/Qwen3-32B -tp 8\n")
    assert lint(tmp_path / "run.sh", "--fix", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    (found,) = [one for one in report["findings"] if one["rule"] == "ENV001"]
    assert found["file"] == str(tmp_path / "env.sh") and report["num_files"] == 2
    assert (tmp_path / "env.sh").read_text() == "export TASK_QUEUE_ENABLE=2\n"
    assert lint(tmp_path, "--fix") == 0
    assert (tmp_path / "env.sh").read_text() == "export TASK_QUEUE_ENABLE=1\n"


def test_only_files_beside_a_script_are_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, inner = "export TASK_QUEUE_ENABLE=2\n", tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "above.sh").write_text(wrong)
    (inner / "large.sh").write_text(wrong + "#" * 2_000_000)
    (inner / "link.sh").symlink_to(tmp_path / "above.sh")
    (inner / "folder.sh").mkdir()
    for name in ("../above.sh", str(tmp_path / "above.sh"), "large.sh", "link.sh", "folder.sh", "gone.sh"):
        (inner / "run.sh").write_text(f"source {name}\nvllm serve Qwen/Qwen3-32B -tp 8\n")
        assert lint(inner / "run.sh") == 0, name
    (inner / "run.sh").write_text("source ../above.sh\nvllm serve Qwen/Qwen3-32B -tp 8\n")
    assert lint(inner / "run.sh", tmp_path / "above.sh") == 1
    assert "above.sh:1:8: error ENV001" in capsys.readouterr().out


def test_the_suffix_of_an_image_says_which_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.sh").write_text(
        "docker run quay.io/ascend/vllm-ascend:v0.23.0-a3 bash\n"
        "vllm serve Eco-Tech/Qwen3.5-35B-A3B-w8a8-mtp -tp 8 --enable-expert-parallel "
        "--additional-config '{\"enable_fused_mc2\": 1}'\n"
    )
    for image, rules in (
        ("v0.23.0", set()),
        ("v0.23.0-a3", set()),
        ("v0.23.0-950dt", {"HOST015", "MOE005"}),
    ):
        lint(tmp_path / "run.sh", "--image", image, "--json")
        found = {one["rule"] for one in json.loads(capsys.readouterr().out)["findings"]}
        assert found & {"HOST015", "MOE005"} == rules, image


def test_a_folder_stands_for_its_scripts(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (wrong.parent / "deep").mkdir()
    (wrong.parent / "deep" / "guide.md").write_text("```bash\nvllm serve m —port 1\n```\n", encoding="utf-8")
    (wrong.parent / "model.bin").write_bytes(b"\x00\xff")
    assert lint(wrong.parent, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["num_files"] == 2
    assert {Path(finding["file"]).name for finding in report["findings"]} == {"run.sh", "guide.md"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "hello world, some text\n",
        "# Notes\n\nMilk, bread.\n",
        "export MY_NAME=1\nls\n",
        "a: 1\n",
        "{}",
    ],
)
def test_what_holds_nothing_known_does_not_pass_for_checked(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("notes.txt", "notes.md", "notes.sh", "notes.yaml"):
        (tmp_path / name).write_text(text)
        assert lint(tmp_path / name) == 2
        output = capsys.readouterr()
        assert "1 file (1 without anything that is known): nothing found" in output.out
        assert "nothing was checked" in output.err and name in output.err
    (tmp_path / "run.sh").write_text(RIGHT)
    assert lint(tmp_path) == 0
    assert "5 files (4 without anything that is known): nothing found" in capsys.readouterr().out
    assert lint(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["num_recognised"] == 1


def test_a_folder_without_files_to_check_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(tmp_path) == 2
    assert "no script, manifest, guide or settings file (.sh, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("env.sh", "export TASK_QUEUE_ENABLE=1\n"),
        ("host.sh", "sysctl -w vm.swappiness=0\n"),
        ("guide.md", "Set --max-num-seqs as high as memory allows.\n"),
        ("compose.yaml", "services:\n  a:\n    image: alpine\n"),
    ],
)
def test_what_is_known_is_checked(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert lint(tmp_path / name) == 0


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WRONG.encode())))
    assert lint("-") == 1
    assert "<stdin>:2:24: error CLI001: " in capsys.readouterr().out


def test_bytes_that_are_no_text_do_not_stop_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.sh").write_bytes(b"#!/bin/bash\nvllm serve m --nam\xff\xfe 1 \xe2\x80\x93port 1\n")
    assert lint(tmp_path / "run.sh") in (0, 1)
    assert lint(tmp_path / "run.sh", "--json") in (0, 1)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lint"], "name the files"),
        (["lint", "no-such.sh"], "no-such.sh cannot be read"),
        (["lint", "x.sh", "--json", "--sarif"], "leave one out"),
        (["lint", "-", "--fix"], "standard input"),
        (["lint", "{file}", "--image", "latest"], "--image"),
        (["lint", "{file}", "--jsn"], "--json"),
        (["lint", "{file}", "--tensor-parallel-size", "2"], "--tensor-parallel-size"),
        (["lintt"], "Did you mean lint?"),
    ],
)
def test_mistakes_of_the_command_line_are_told(
    arguments: list[str], said: str, wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", *(argument.replace("{file}", str(wrong)) for argument in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_lint_has_complete_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "lint", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:\n  qanat deploy lint" in text
    assert all(flag in text for flag in ("--image", "--json", "--sarif", "--fix")) and "--config" not in text


def test_it_loads_neither_torch_nor_numpy(wrong: Path) -> None:
    code = (
        "import sys; from qanat.cli.main import main; main(['deploy', 'lint', sys.argv[1]]); "
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, str(wrong)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
