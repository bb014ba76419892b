"""What the page shows is what the program says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from qanat.cli.deploy_actions.plan import COMMAND
from qanat.cli.main import main
from qanat.config.command_line import Grammar

PAGE = Path(__file__).parents[3] / "docs" / "deploy-plan.md"
REFUSED = "deploy plan --model Qwen3.5-397B-A17B --hardware atlas-800-a2 --weights w8a8 --nodes 1"


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", text(), re.DOTALL)
    return [shlex.split(block.replace("\\\n", " "))[1:] for block in blocks]


def shown(kind: str) -> list[str]:
    blocks = re.findall(rf"<!-- output: {kind} -->\n```text\n(.*?)```", text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def test_the_plan_on_the_page_is_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = commands()
    assert main([*first[:-1], str(tmp_path / "plan.yaml")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in shown("plan") if line not in said] == []
    for command in others:
        assert main(command) == 0


def test_the_310p_on_the_page_is_real(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = [words for words in commands() if "310P" in words]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert shown("310P") and [line for line in shown("310P") if line not in said] == []


def test_the_refusal_on_the_page_is_real(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(REFUSED.split()) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line for line in shown("refusal") if line not in said] == []


def test_the_file_on_the_page_is_a_wish(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", text(), re.DOTALL)
    file = tmp_path / "wish.yaml"
    file.write_text(block)
    assert main(["deploy", "plan", "--wish", str(file)]) == 0


def test_every_flag_on_the_page_exists() -> None:
    known = Grammar.of(COMMAND.options, with_known_flags=False).kinds
    table = [line for line in text().splitlines() if line.startswith("| `--")]
    named = re.findall(r"`--([a-z-]+)`", "\n".join(table))
    assert named and set(named) <= set(known)
