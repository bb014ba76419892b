"""`qanat eval --num-samples --pass-at` through its door: against the demo model, and against a server with a script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import main
from tests.evals.stub import Stub, chat, question_of, stub_server
from tests.support.server_process import ServerProcess

ROWS = [{"question": f"{n} and 0?", "answer": n, "check": "number"} for n in range(4)]


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    """Four sums, the answer of number n is n."""
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def lines_of(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()[1:]]


def run(capsys: pytest.CaptureFixture[str], stub: Stub, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the JSON report."""
    capsys.readouterr()
    code = main(["eval", "--base-url", stub.url, "--json", "--temperature", "0.8", *arguments])
    return code, json.loads(capsys.readouterr().out)


def right_so_often(*times: int) -> Any:
    """Of each four answers to item n so many are right, the first ones."""

    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        number = int(question_of(body).split()[0])
        return 200, chat(str(number if count % 4 < times[number] else 99))

    return script


def test_pass_at_k_with_intervals(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    arguments = ["--tasks", tasks, "--num-samples", "4", "--pass-at", "2", "1"]
    with stub_server(right_so_often(0, 1, 2, 4)) as stub:
        code, report = run(capsys, stub, *arguments)
    row = report["scores"]["overall"]
    assert code == 0
    assert [row[name] for name in ("items", "samples", "right", "wrong", "percent")] == [4, 4, 7, 9, 43.75]
    # Of the six pairs of four answers none, three, five and all have a right one.
    assert row["pass_at"]["2"]["percent"] == pytest.approx(100 * (0 + 3 / 6 + 5 / 6 + 1) / 4, abs=0.01)
    assert row["pass_at"]["1"]["percent"] == row["percent"]
    assert row["pass_at"]["1"]["interval"] == row["interval"]
    with stub_server(right_so_often(0, 1, 2, 4)) as stub:
        assert main(["eval", "--base-url", stub.url, "--temperature", "0.8", *arguments]) == 0
    _, head, row_text = capsys.readouterr().out.splitlines()[:3]
    assert [word for word in head.split() if "@" in word] == ["pass@1", "pass@2"]
    assert row_text.split()[:6] == ["sums", "4", "16", "7", "9", "0"]
    assert "58.3 %" in row_text


def test_each_answer_has_a_seed_of_its_own_that_is_the_same_again(
    capsys: pytest.CaptureFixture[str], tasks: str
) -> None:
    def seeds(*arguments: str) -> list[tuple[str, int]]:
        with stub_server(right_so_often(9, 9, 9, 9)) as stub:
            run(capsys, stub, "--tasks", tasks, "--num-samples", "5", "--concurrency", "1", *arguments)
            return [(question_of(body).split()[0], body["seed"]) for body in stub.bodies]

    first = seeds()
    assert first == seeds()
    assert [seed for _, seed in first[::5]] == [0] * 4, "the first answer is that of a run of one"
    others = [seed for number, (_, seed) in enumerate(first) if number % 5]
    assert len(set(others)) == 16
    assert all(0 <= seed < 2**31 for seed in others)
    assert not set(others) & {seed for _, seed in seeds("--seed", "1")}


def test_a_run_goes_on_and_grows(capsys: pytest.CaptureFixture[str], tasks: str, tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl"
    arguments = ["--tasks", tasks, "--record", str(record), "--concurrency", "1"]

    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        is_refused = len(stub.bodies) in (8, 9)
        return (400, {"error": {"message": "no"}}) if is_refused else (200, chat(question_of(body)))

    with stub_server(script) as stub:
        assert run(capsys, stub, *arguments)[0] == 0
        code, report = run(capsys, stub, *arguments, "--num-samples", "3", "--pass-at", "3")
        row = report["scores"]["overall"]
        assert (code, row["errors"], row["pass_at"]["3"]["left_out"], len(stub.bodies)) == (1, 2, 2, 12)
        code, report = run(capsys, stub, *arguments, "--num-samples", "3", "--pass-at", "3")
        row = report["scores"]["overall"]
        assert (code, row["errors"], row["pass_at"]["3"]["items"], len(stub.bodies)) == (0, 0, 4, 14)
    answered = [(line["item_id"], line["sample"]) for line in lines_of(record) if line["verdict"] != "error"]
    assert sorted(answered) == [(str(item), sample) for item in range(4) for sample in range(3)]


def test_a_baseline_is_compared_by_item_and_gated(
    capsys: pytest.CaptureFixture[str], tasks: str, tmp_path: Path
) -> None:
    record = tmp_path / "before.jsonl"
    arguments = ["--tasks", tasks, "--num-samples", "4"]
    with stub_server(right_so_often(4, 4, 4, 4)) as before, stub_server(right_so_often(4, 1, 2, 4)) as after:
        run(capsys, before, *arguments, "--record", str(record))
        code, report = run(capsys, after, *arguments, "--baseline", str(record), "--gate", "20")
        words = ["--baseline", str(record), "--temperature", "0.8"]
        assert main(["eval", "--base-url", after.url, *arguments, *words]) == 0
        text = capsys.readouterr().out
        fewer = ["eval", "--base-url", after.url, "--tasks", tasks, "--num-samples", "5", *words]
        assert main(fewer) == 2
    told = report["comparison"]
    assert (code, told["is_met"], told["items"], told["samples"]) == (1, False, 4, 4)
    assert (told["right_before"], told["right_after"], told["loss_points"]) == (16, 11, 31.25)
    assert (told["lost_items"], told["gained"]) == ([["sums", "1"], ["sums", "2"]], 0)
    assert told["p_value"] == 0.5, "two items fell, and two could as well have risen"
    assert told["loss_bound_points"] > 31.25
    assert "4 items that both answered, 4 times each" in text
    assert "2 items got worse, 0 better" in text
    assert "paired permutation test over items" in text
    assert "as many times each (--num-samples)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--pass-at", "10"], "give --num-samples 10 or more"),
        (
            ["--pass-at", "1", "6", "--num-samples", "5", "--temperature", "1"],
            "--pass-at 6 cannot be told from 5",
        ),
        (["--pass-at", "0"], "--pass-at 0: a whole number from 1 on"),
        (["--pass-at", "many"], "--pass-at many: a whole number"),
        (["--num-samples", "2"], "all answers to an item would be the same"),
        (["--num-samples", "2", "--scoring", "letter"], "probabilities are the same each time"),
        (
            ["--num-samples", "2", "--temperature", "1", "--extra-body", '{"seed": 3}'],
            "--extra-body with seed",
        ),
    ],
)
def test_samples_that_tell_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["eval", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_guesses_at_choices_are_no_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "days.jsonl"
    path.write_text('{"question": "Which?", "choices": ["a", "b", "c", "d"], "answer": "B"}\n')
    arguments = ["--tasks", str(path), "--num-samples", "10", "--pass-at"]
    with stub_server(lambda body, count: (200, chat("B"))) as stub:
        assert main(["eval", "--base-url", stub.url, "--temperature", "1", *arguments, "10"]) == 2
        assert not stub.bodies
        assert "guessing alone" in (error := capsys.readouterr().err)
        assert "in 94% of all cases" in error
        code, report = run(capsys, stub, *arguments, "1")
    assert (code, report["scores"]["overall"]["pass_at"]["1"]["percent"]) == (0, 100.0)


@pytest.fixture(scope="module")
def demo_server() -> Iterator[ServerProcess]:
    with ServerProcess(["--max-model-len", "1024"]) as server:
        yield server


def test_programs_of_the_demo_model_are_drawn_the_same_again(
    demo_server: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whether they pass is not the point: each is run, and a second run has the same ones to the letter."""
    path = tmp_path / "HumanEval.jsonl"
    test = "def check(candidate):\n    assert candidate(2) == 4\n"
    row = {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f", "test": test}
    path.write_text(json.dumps(row) + "\n")
    answers = []
    for name in ("one.jsonl", "two.jsonl"):
        record = tmp_path / name
        arguments = ["--tasks", str(path), "--allow-code-execution", "--record", str(record), "--no-thinking"]
        sampling = ["--num-samples", "6", "--pass-at", "1", "5", "--temperature", "1.2", "--max-tokens", "24"]
        code = main(["eval", "--base-url", demo_server.base_url, "--json", *arguments, *sampling])
        row = json.loads(capsys.readouterr().out)["scores"]["overall"]
        assert (code, row["items"], row["samples"], list(row["pass_at"])) == (0, 1, 6, ["1", "5"])
        answers.append([line["answer"] for line in sorted(lines_of(record), key=lambda line: line["sample"])])
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 1, "seeds differ, and so do answers"
