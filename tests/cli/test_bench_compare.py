"""`qanat bench compare` and `sweep` against a server that answers by a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from qanat.cli.main import main
from tests.support.delayed_process import DelayedServer, delayed_server

CAN_BE_BUSY = (0, 3)


@pytest.fixture(scope="module")
def stub() -> Iterator[DelayedServer]:
    with delayed_server() as running:
        yield running


def url(stub: DelayedServer) -> str:
    return f"http://127.0.0.1:{stub.port}"


def test_two_settings_are_compared_in_pairs(
    stub: DelayedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "compared.json"
    sides = ('extra-body={"script": [[60, 1], [20, 1]]}', 'extra-body={"script": [[15, 1], [5, 1]]}')
    arguments = (
        url(stub),
        "--num-prompts",
        "4",
        "--input-len",
        "5",
        "--max-concurrency",
        "2",
        "--pairs",
        "3",
    )
    code = main(
        ["bench", "compare", *arguments, "--a", sides[0], "--b", sides[1], "--output-json", str(path)]
    )
    output = capsys.readouterr()
    assert code in CAN_BE_BUSY, output
    result = json.loads(path.read_text())
    assert len(result["pairs"]) == 3
    throughputs = [[pair[side]["output_throughput"] for pair in result["pairs"]] for side in "ab"]
    assert sum(throughputs[1]) > sum(throughputs[0])
    assert result["differences"]["output_throughput"]["num_pairs"] == 3
    assert result["answer"].endswith(", n = 3")  # how sure it is depends on what else the machine does
    assert output.out.rstrip().endswith(result["answer"])
    order = [line.split(", ")[1][0] for line in output.err.splitlines() if line.startswith("pair ")]
    assert order == list("ABBAAB")


def test_a_side_that_answers_nothing_ends_the_comparison(
    stub: DelayedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ("--a", 'extra-body={"script": [[1, 1]]}', "--b", 'extra-body={"status": 500}')
    assert main(["bench", "compare", url(stub), "--num-prompts", "2", "--input-len", "5", *sides]) == 1
    assert "B answered no request" in capsys.readouterr().err


def test_the_highest_rate_within_bounds_is_found(
    stub: DelayedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One request at a time, of 20 ms each, is 50 a second: what a higher rate leaves waiting breaks the bound."""
    path = tmp_path / "sweep.json"
    load = ("--num-prompts", "40", "--input-len", "5", "--burstiness", "inf", "--max-concurrency", "1")
    script = ("--extra-body", '{"script": [[10, 1], [10, 1]]}', "--goodput", "e2el:100")
    search = ("--start-rate", "32", "--max-runs", "3", "--slo-share", "0.9", "--output-json", str(path))
    code = main(["bench", "sweep", "--base-url", url(stub), *load, *script, *search])
    output = capsys.readouterr()
    result = json.loads(path.read_text())
    assert result["lowest_rate_missed"] is not None and result["lowest_rate_missed"] <= 128
    assert code == (0 if result["highest_rate"] else 1)
    assert {"bounds missed", "rate_not_reached"} & set(result["runs"][-1]["reasons"]) or result[
        "highest_rate"
    ]
    assert ("Highest rate that meets the bounds" if result["highest_rate"] else "No rate meets") in output.out


@pytest.mark.parametrize(
    ("action", "flags", "said"),
    [
        ("compare", "http://a:1 http://b:1 http://c:1", "two servers are compared"),
        ("compare", "http://127.0.0.1:1 --a temperature", "NAME=VALUE is expected"),
        ("compare", "http://127.0.0.1:1 --a temprature=0", "unknown flag --temprature"),
        ("compare", "http://127.0.0.1:1 --save-result", "--output-json FILE takes all of them"),
        ("compare", "http://127.0.0.1:1 --a report=a.html", "--a: --report is not of one side"),
        ("compare", "http://127.0.0.1:1 --pairs 1", "too small"),
        ("sweep", "--num-prompts 3", "--goodput says what is to be met"),
        ("sweep", "--goodput ttft:3 --request-rate 3", "begins at --start-rate"),
        ("sweep", "more --goodput ttft:3", "more belongs to no flag"),
    ],
)
def test_mistakes_are_named(action: str, flags: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", action, *flags.split()]) == 2
    assert said in capsys.readouterr().err
