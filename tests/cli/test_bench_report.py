"""`--report` of the benchmarks, and `qanat bench report` of what they saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from qanat.cli.main import main
from tests.support.delayed_process import DelayedServer, delayed_server

CAN_BE_BUSY = (0, 3)
SCRIPT = '{"script": [[20, 1], [5, 1], [5, 1]]}'


@pytest.fixture(scope="module")
def stub() -> Iterator[DelayedServer]:
    with delayed_server() as running:
        yield running


def test_a_run_writes_its_report_and_a_saved_one_gives_the_same(
    stub: DelayedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    first, again = tmp_path / "first.html", tmp_path / "again.html"
    flags = ["--port", str(stub.port), "--extra-body", SCRIPT, "--input-len", "5", "--num-prompts", "6"]
    flags += ["--header", "X-Api-Key=other-not-to-be-seen", "--report", str(first), "--label", "first"]
    flags += [
        "--save-result",
        "--save-detailed",
        "--result-dir",
        str(tmp_path),
        "--result-filename",
        "r.json",
    ]
    assert main(["bench", "serve", *flags]) in CAN_BE_BUSY
    assert main(["bench", "report", str(tmp_path / "r.json"), "-o", str(again)]) == 0
    capsys.readouterr()
    pages = [path.read_text(encoding="utf-8") for path in (first, again)]
    for page in pages:
        ElementTree.fromstring(page.partition("\n")[2])
        assert "not-to-be-seen" not in page
    assert pages[0].count("<svg") >= 6
    assert [page.partition("</h2>")[2] for page in pages[:1]] == [
        page.partition("</h2>")[2] for page in pages[1:]
    ]
    saved = json.loads((tmp_path / "r.json").read_text())
    assert saved["qanat"]["settings"]["num_prompts"] == 6
    assert "header" not in saved["qanat"]["settings"]


def test_a_sweep_writes_its_report(
    stub: DelayedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.html"
    flags = ["--port", str(stub.port), "--extra-body", SCRIPT, "--input-len", "5", "--num-prompts", "4"]
    flags += ["--goodput", "e2el:5000", "--start-rate", "40", "--max-rate", "80", "--max-runs", "2"]
    assert main(["bench", "sweep", *flags, "--report", str(path)]) in (0, 1)
    capsys.readouterr()
    page = path.read_text(encoding="utf-8")
    assert "against rate" in page
    assert "<summary>40.00 requests/s</summary>" in page


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "no JSON"),
        ("[1]", "is no result"),
        ('{"a": 1}', "is no result"),
        ('{"duration": 1, "start_times": [1], "ttfts": [], "itls": []}', "differ in length"),
        ('{"duration": 1, "start_times": [[]], "ttfts": [1], "itls": [[]]}', "not as a result has it"),
        ('{"runs": [1], "highest_rate": null}', "not as a result has it"),
    ],
)
def test_files_without_a_result_are_named(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.json"
    path.write_text(content)
    assert main(["bench", "report", str(path), "-o", str(tmp_path / "r.html")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "some.json" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("report", "name at least one file"),
        ("report nowhere.json", "--output FILE"),
        ("report nowhere.json -o r.html", "nowhere.json cannot be read"),
        ("serve --report nowhere/r.html", "there is no such folder"),
    ],
)
def test_mistakes_are_named(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments.split()]) == 2
    assert said in capsys.readouterr().err
