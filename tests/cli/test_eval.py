"""`qanat eval` through its door: against a server that is told what to answer, and against the demo model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.eval_texts import score_lines
from qanat.cli.main import main
from qanat.evals.record import Result
from qanat.evals.summary import scores
from tests.evals.stub import Stub, chat, completion, question_of, stub_server
from tests.support.server_process import ServerProcess


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    """Ten sums, the answer of number n is n."""
    path = tmp_path / "sums.jsonl"
    rows = [{"question": f"{n} and 0?", "answer": n, "check": "number"} for n in range(10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def right(body: Mapping[str, Any], count: int = 0) -> tuple[int, Any]:
    return 200, chat(f"The answer is {question_of(body).split()[0]}.")


def run(capsys: pytest.CaptureFixture[str], stub: Stub, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the JSON report."""
    code = main(["eval", "--base-url", stub.url, "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_table_with_intervals(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    with stub_server(
        lambda body, count: right(body) if "7" not in question_of(body) else (200, chat("77"))
    ) as stub:
        assert main(["eval", "--base-url", f"{stub.url}/v1", "--tasks", tasks]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"stub-model at {stub.url}"
    assert lines[2].split() == ["sums", "10", "9", "1", "0", "0", "90.0", "%", "59.6", "to", "98.2"]
    assert stub.bodies[0]["temperature"] == 0
    assert "chat_template_kwargs" not in stub.bodies[0]


def test_faults_are_tried_again_and_counted_as_errors_not_as_wrong(
    capsys: pytest.CaptureFixture[str], tasks: str
) -> None:
    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        number = int(question_of(body).split()[0])
        if number == 1 and count == 0:
            return 503, {"error": {"message": "busy"}}
        if number == 2:
            return 400, {"error": {"message": "no such thing"}}
        if number == 3:
            return 200, b"<html>"
        if number == 4:
            return 500, {"error": {"message": "broken"}}
        if number == 5:
            return 200, chat("The answer", "abort")
        return right(body)

    with stub_server(script) as stub:
        code, report = run(capsys, stub, "--tasks", tasks, "--retries", "1")
        asked = [question_of(body).split()[0] for body in stub.bodies]
        assert main(["eval", "--base-url", stub.url, "--tasks", tasks, "--retries", "0"]) == 1
    assert code == 1
    row = report["scores"]["overall"]
    assert (row["right"], row["wrong"], row["errors"], row["percent"]) == (6, 0, 4, 100.0)
    assert [asked.count(str(number)) for number in range(5)] == [1, 2, 1, 1, 2]
    text = capsys.readouterr().out
    assert "errors: 4 items have no answer and are in no score:" in text
    assert "1 x status 400: no such thing" in text


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_everything_ends_the_run(
    capsys: pytest.CaptureFixture[str], tasks: str, status: int
) -> None:
    with stub_server(lambda body, count: (status, {"error": {"message": "go away"}})) as stub:
        assert main(["eval", "--base-url", stub.url, "--tasks", tasks, "--concurrency", "1"]) == 1
        assert len(stub.bodies) == 1
    assert f"refuses every question: status {status}: go away" in capsys.readouterr().err


def test_a_key_that_the_server_repeats_is_hidden(
    capsys: pytest.CaptureFixture[str], tasks: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STUB_KEY", "top-secret")
    record = tmp_path / "r.jsonl"
    with stub_server(lambda body, count: (400, {"error": {"message": "not with top-secret"}})) as stub:
        arguments = ["--tasks", tasks, "--api-key-env", "STUB_KEY", "--record", str(record)]
        assert main(["eval", "--base-url", stub.url, *arguments]) == 1
    told = capsys.readouterr()
    assert "not with ***" in told.out
    assert "top-secret" not in told.out + told.err + record.read_text()


def test_cut_and_empty_answers_are_counted_apart(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        number = question_of(body).split()[0]
        answers = {
            "1": chat("so far 1", "length"),
            "2": chat(None, reasoning_content="2"),
            "3": chat("three"),
        }
        return 200, answers.get(number) or right(body)[1]

    with stub_server(script) as stub:
        code, report = run(capsys, stub, "--tasks", tasks)
        assert main(["eval", "--base-url", stub.url, "--tasks", tasks]) == 0
    row = report["scores"]["overall"]
    assert code == 0
    assert [row[name] for name in ("right", "wrong", "cut", "empty", "unextracted")] == [7, 2, 1, 1, 2]
    text = capsys.readouterr().out
    assert "cut: 1 answers reached their longest length" in text
    assert "empty: 1 answers" in text


@pytest.mark.parametrize("answer", [
    chat("<think>\nstep 1\n\n\nstep 2</think>42\n\n\nnext 7"),
    chat("42\n\n\nnext 7", reasoning_content="step 1\n\n\nstep 2"),
])  # fmt: skip
def test_ben_016_stops_are_looked_for_in_the_answer_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, answer: dict[str, Any]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"question": "6*7", "answer": "42", "check": "exact"}\n')
    with stub_server(lambda body, count: (200, answer)) as stub:
        code, report = run(capsys, stub, "--tasks", str(path), "--stop", "\n\n\n")
    assert (code, report["scores"]["overall"]["percent"]) == (0, 100.0)
    assert "stop" not in stub.bodies[0]


def test_completions_with_examples(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        last = body["prompt"].rsplit("Question: ", 1)[1].split()[0]
        return 200, completion(f" The answer is {last}\nQuestion: 8 and 8?", "length")

    with stub_server(script) as stub:
        code, report = run(capsys, stub, "--tasks", tasks, "--mode", "completions", "--num-fewshot", "2")
    assert (code, report["scores"]["overall"]["percent"]) == (0, 100.0)
    assert all(body["prompt"].count("Question: ") == 3 for body in stub.bodies)
    assert "\nQuestion:" in stub.bodies[0]["stop"]


def test_thinking_and_further_fields_are_sent(
    capsys: pytest.CaptureFixture[str], tasks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_KEY", "top-secret")
    more = [
        "--no-thinking",
        "--extra-body",
        '{"top_k": 5}',
        "--api-key-env",
        "STUB_KEY",
        "--temperature",
        "0.5",
    ]
    with stub_server(right) as stub:
        code, report = run(capsys, stub, "--tasks", tasks, "--limit", "1", "--max-tokens", "9", *more)
    (body,) = stub.bodies
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert (body["top_k"], body["max_tokens"], body["seed"]) == (5, 9, 0)
    assert stub.keys == ["Bearer top-secret"]
    assert "top-secret" not in json.dumps(report)


def test_a_run_that_was_killed_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tasks: str
) -> None:
    record = tmp_path / "record.jsonl"
    is_held = threading.Event()
    release = threading.Event()

    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        if int(question_of(body).split()[0]) == 6 and count == 0:
            is_held.set()
            release.wait(60)
        return right(body)

    with stub_server(script) as stub:
        arguments = [
            "eval",
            "--base-url",
            stub.url,
            "--tasks",
            tasks,
            "--record",
            str(record),
            "--concurrency",
            "1",
        ]
        process = subprocess.Popen([sys.executable, "-m", "qanat", *arguments], env=os.environ)
        try:
            assert is_held.wait(60)
            process.send_signal(signal.SIGKILL)
            assert process.wait(60) == -signal.SIGKILL
        finally:
            process.kill()
            release.set()
        with record.open("ab") as file:
            file.write(b'{"task": "sums", "item_id": "6", "verd')  # torn
        asked = len(stub.bodies)
        assert main(arguments) == 0
        assert [question_of(body).split()[0] for body in stub.bodies[asked:]] == ["6", "7", "8", "9"]
        capsys.readouterr()
        assert main([*arguments, "--seed", "4", "--temperature", "1"]) == 2
        assert main([*arguments, "--limit", "3"]) == 0, "fewer items are no other settings"
        assert len(stub.bodies) == asked + 4
    error = capsys.readouterr().err
    assert "was begun with other settings: seed was 0, is 4; temperature was 0.0, is 1.0" in error
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(lines) == 11
    assert lines[1]["prompt"][0]["content"].startswith("0 and 0?")
    assert (lines[1]["answer"], lines[1]["extraction"], lines[1]["verdict"]) == (
        "The answer is 0.",
        "0",
        "right",
    )


def wrong_at(*numbers: int) -> Any:
    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        if int(question_of(body).split()[0]) in numbers:
            return 200, chat("99")
        return right(body)

    return script


def test_two_servers_are_compared_item_by_item(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tasks: str
) -> None:
    record = tmp_path / "before.jsonl"
    with stub_server(right) as before, stub_server(wrong_at(1, 2, 3, 4, 5, 6, 7)) as after:
        assert main(["eval", "--base-url", before.url, "--tasks", tasks, "--record", str(record)]) == 0
        capsys.readouterr()
        code, report = run(capsys, after, "--tasks", tasks, "--baseline", before.url)
        assert (code, after.bodies[0]["top_logprobs"]) == (0, 5)
        by_record = run(capsys, after, "--tasks", tasks, "--baseline", str(record), "--gate", "20")
        assert (
            main(
                ["eval", "--base-url", after.url, "--tasks", tasks, "--baseline", str(record), "--gate", "99"]
            )
            == 0
        )
    told = report["comparison"]
    assert (told["lost"], told["gained"], told["loss_points"]) == (7, 0, 70.0)
    assert told["p_value"] == pytest.approx(2 / 2**7)
    assert told["lost_items"][0] == ["sums", "1"]
    assert by_record[0] == 1
    assert by_record[1]["comparison"]["is_met"] is False
    text = capsys.readouterr().out
    assert (
        "the difference is real at the 95 % level: the baseline is better (p = 0.0156, exact McNemar test)"
        in text
    )
    assert "gate of 99 points: met" in text


def test_a_small_difference_is_not_called_real(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    with stub_server(wrong_at(1)) as before, stub_server(wrong_at(2, 3)) as after:
        arguments = [
            "eval",
            "--base-url",
            after.url,
            "--tasks",
            tasks,
            "--baseline",
            before.url,
            "--gate",
            "12",
        ]
        assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "2 answers lost, 1 gained" in text
    assert "no difference that chance would not make too (p = 1, exact McNemar test, 95 % level)" in text
    assert "gate of 12 points: MISSED; the loss itself lies within, more items may show it" in text


def test_programs_are_run_with_leave_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "HumanEval.jsonl"
    row = {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f"}
    path.write_text(
        json.dumps({**row, "test": "def check(candidate):\n    assert candidate(2) == 4\n"}) + "\n"
    )
    with stub_server(lambda body, count: (200, chat("```python\ndef f(x):\n    return x * x\n```"))) as stub:
        assert main(["eval", "--base-url", stub.url, "--tasks", str(path)]) == 2
        assert not stub.bodies
        assert "--allow-code-execution" in capsys.readouterr().err
        code, report = run(capsys, stub, "--tasks", str(path), "--allow-code-execution")
    assert (code, report["scores"]["overall"]["right"]) == (0, 1)


def test_what_programs_could_not_be_kept_from_is_said() -> None:
    result = Result(
        task="t", item_id="0", digest="d", verdict="wrong", extraction="x", open_layers=("files",)
    )
    lines = list(score_lines("m", [result], scores([result], 0.95), 0.95))
    assert lines[-1] == "programs ran without a lock on: files (this kernel has none to offer)"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--gate", "1"], "--gate needs --baseline"),
        (["--baseline-model", "x"], "--baseline-model needs --baseline"),
        (["--baseline", "r.jsonl", "--baseline-record", "x"], "the baseline is a record already"),
        (["--fewshot-file", "x.jsonl"], "--fewshot-file needs --num-fewshot"),
        (["--mode", "completions", "--thinking"], "--thinking is a matter of chats"),
        (["--prompt-template", "x"], "has no {question}"),
        (["--tasks", "nowhere.jsonl"], "there is no such file"),
        (["--num-shots", "1"], "--num-shots"),
        (["extra"], "takes flags only"),
        (["--base-url", "ftp://x"], "is no address"),
        (["--confidence", "95"], "--confidence: 95.0 is too large"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert main(["eval", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_flags_without_effect_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    row = {"messages": [{"role": "user", "content": "1 and 0?"}], "answer": 1, "check": "number"}
    path.write_text(
        json.dumps(row) + "\n" + json.dumps({"question": "2 and 0?", "answer": 2, "check": "number"}) + "\n"
    )
    with stub_server(right) as stub:
        assert main(["eval", "--base-url", stub.url, "--tasks", str(path), "--system", "Be brief."]) == 0
    assert (
        "--system -> no effect on 1 items: they bring a conversation of their own" in capsys.readouterr().err
    )
    assert sorted(len(body["messages"]) for body in stub.bodies) == [1, 2]


def test_without_the_demo_model_files_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qanat.cli.eval_plan.DEMO_PACKAGE", "no_such_package")
    assert main(["eval"]) == 2
    assert "give files as --tasks, or install the package qanat-demo" in capsys.readouterr().err


def test_no_server(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    with stub_server(right) as stub:
        pass
    assert main(["eval", "--base-url", stub.url, "--tasks", tasks]) == 1
    assert "the server cannot be asked: nothing listens on" in capsys.readouterr().err


@pytest.fixture(scope="module")
def demo_server() -> Iterator[ServerProcess]:
    with ServerProcess(["--max-model-len", "2048"]) as server:
        yield server


def test_the_demo_model_passes_its_own_tasks(
    demo_server: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    record = tmp_path / "demo.jsonl"
    arguments = ["eval", "--base-url", demo_server.base_url, "--limit", "3", "--json"]
    assert main([*arguments, "--record", str(record), "--logprobs", "5"]) == 0
    table = json.loads(capsys.readouterr().out)["scores"]
    assert list(table) == [
        "add",
        "sub",
        "sort",
        "compare",
        "text",
        "json",
        "tool_call",
        "tool_answer",
        "overall",
    ]
    assert table["overall"]["percent"] > 85
    assert table["overall"]["errors"] == table["overall"]["cut"] == 0
    assert main([*arguments, "--baseline", str(record)]) == 0
    told = json.loads(capsys.readouterr().out)["comparison"]
    assert (told["lost"], told["gained"], told["num_same_answers"]) == (0, 0, 24), (
        "the same server answers the same"
    )
    assert told["kl"]["mean_nats"] == 0
    assert told["kl"]["places"] > 50


def test_completions_of_the_demo_model_carry_log_probabilities(
    demo_server: ServerProcess, capsys: pytest.CaptureFixture[str], tasks: str, tmp_path: Path
) -> None:
    record = tmp_path / "completions.jsonl"
    arguments = ["--mode", "completions", "--max-tokens", "8", "--logprobs", "3", "--limit", "2"]
    code = main(
        ["eval", "--base-url", demo_server.base_url, "--tasks", tasks, "--record", str(record), *arguments]
    )
    assert code == 0
    lines = [json.loads(line) for line in record.read_text().splitlines()[1:]]
    assert [len(line["chances"]) for line in lines] == [8, 8]
    assert all(len(place) >= 3 for place in lines[0]["chances"])
