"""`qanat eval --scoring` through its door: against the demo model, and against servers that cannot score."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat.cli.main import main
from tests.evals.stub import chat, question_of, stub_server
from tests.support.server_process import ServerProcess

ROWS = [
    {"question": "What comes after Monday?", "choices": ["Tuesday", "the day", "the days"], "answer": "A"},
    {"question": "3 + 4 = ?", "choices": ["12", "7", "77"], "answer": "B"},
    {"question": "中国的首都是哪里？", "choices": ["上海", "北京", "北平"], "answer": "B"},
]


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    """Three multiple-choice questions."""
    path = tmp_path / "days.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


@pytest.fixture(scope="module")
def demo_server() -> Iterator[ServerProcess]:
    with ServerProcess(["--max-model-len", "1024"]) as server:
        yield server


def lines_of(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()[1:]]


def whole_likelihood(server: ServerProcess, text: str) -> float:
    """Of all tokens of a text but the first, in vLLM's own form."""
    body = {"prompt": text, "max_tokens": 1, "prompt_logprobs": 0}
    (choice,) = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60).json()["choices"]
    return sum(next(iter(place.values()))["logprob"] for place in choice["prompt_logprobs"][1:])


def test_choices_differ_by_what_their_whole_texts_differ_by(
    demo_server: ServerProcess, tasks: str, tmp_path: Path
) -> None:
    record = tmp_path / "r.jsonl"
    arguments = ["eval", "--base-url", demo_server.base_url, "--tasks", tasks, "--record", str(record)]
    assert main([*arguments, "--scoring", "likelihood"]) == 0
    found = {line["item_id"]: line for line in lines_of(record)}
    for number, row in enumerate(ROWS):
        line = found[str(number)]
        gap = "" if number == 2 else " "
        texts = [f"{line['prompt']}{gap}{choice}" for choice in row["choices"]]
        whole = [whole_likelihood(demo_server, text) for text in texts]
        scores = list(line["scores"].values())
        assert [one - scores[0] for one in scores] == pytest.approx(
            [one - whole[0] for one in whole], abs=1e-4
        )
        assert line["extraction"] == "ABC"[whole.index(max(whole))]


def test_scores_are_kept_compared_and_gated(
    demo_server: ServerProcess, tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "r.jsonl"
    arguments = [
        "eval",
        "--base-url",
        demo_server.base_url,
        "--tasks",
        tasks,
        "--scoring",
        "likelihood-per-character",
    ]
    assert main([*arguments, "--record", str(record), "--limit", "2"]) == 0
    assert main([*arguments, "--record", str(record)]) == 0
    assert sorted(line["item_id"] for line in lines_of(record)) == ["0", "1", "2"], "each was asked once"
    capsys.readouterr()
    assert main([*arguments, "--baseline", str(record), "--gate", "80", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["comparison"]
    assert (told["items"], told["lost"], told["gained"], told["is_met"]) == (3, 0, 0, True)
    assert main([*arguments[:-1], "letter", "--record", str(record)]) == 2
    assert 'scoring was "likelihood-per-character", is "letter"' in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["chat", "completions"])
def test_letters_of_the_demo_model(demo_server: ServerProcess, tasks: str, tmp_path: Path, mode: str) -> None:
    record = tmp_path / "r.jsonl"
    arguments = ["eval", "--base-url", demo_server.base_url, "--tasks", tasks, "--record", str(record)]
    assert main([*arguments, "--scoring", "letter", "--mode", mode, "--num-fewshot", "1"]) == 0
    for line in lines_of(record):
        assert (len(line["tokens"]), line["usage"]["completion_tokens"]) == (1, 1)
        assert len(line["chances"][0]) >= 15, "tokens of one text are one entry"
        likely = {token.strip() for token in line["chances"][0]}
        assert set(line["scores"]) == likely & {"A", "B", "C"}


def letters(**chances: float) -> dict[str, Any]:
    """A chat's first token."""
    tops = [{"token": token, "logprob": math.log(chance)} for token, chance in chances.items()]
    first = {"token": tops[0]["token"], "top_logprobs": tops}
    answer = chat(str(tops[0]["token"]), "length")
    answer["choices"][0]["logprobs"] = {"content": [first]}
    return answer


def test_a_letter_is_chosen_by_its_probability_and_not_by_what_is_said(
    tasks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        if "Monday" in question_of(body):
            return 200, letters(The=0.5, A=0.2, B=0.1)
        return 200, letters(The=0.5, B=0.2, A=0.1) if "3 + 4" in question_of(body) else letters(The=0.9)

    with stub_server(script) as stub:
        code = main(["eval", "--base-url", stub.url, "--tasks", tasks, "--scoring", "letter", "--json"])
    row = json.loads(capsys.readouterr().out)["scores"]["overall"]
    assert (code, row["right"], row["wrong"], row["unextracted"], row["cut"]) == (0, 2, 1, 1, 0)
    body = stub.bodies[-1]
    assert (body["max_tokens"], body["top_logprobs"]) == (1, 20)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def ignores_echo(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
    """A server with /tokenize that scores what it generates only."""
    if "max_tokens" not in body:
        return 200, {"tokens": list(body["prompt"].encode())}
    one = {"text": "x", "logprobs": {"token_logprobs": [-1.0]}}
    return 200, {"choices": [{"index": index, **one} for index in range(len(body["prompt"]))]}


@pytest.mark.parametrize(
    ("script", "scoring", "told"),
    [
        (lambda body, count: (404, {"detail": "Not Found"}), "likelihood", "status 404"),
        (ignores_echo, "likelihood", "takes no notice of echo with logprobs"),
        (lambda body, count: (200, chat("A")), "letter", "the server gives no log-probabilities"),
        (lambda body, count: (400, {"error": "at most 5"}), "letter", "status 400: at most 5"),
    ],
)
def test_a_server_that_cannot_score_is_told_so_at_once(
    tasks: str, capsys: pytest.CaptureFixture[str], script: Any, scoring: str, told: str
) -> None:
    with stub_server(script) as stub:
        assert main(["eval", "--base-url", stub.url, "--tasks", tasks, "--scoring", scoring]) == 1
        assert len(stub.bodies) <= 4, "one item that is none of the task's was tried"
    error = capsys.readouterr().err
    assert "the server cannot score choices" in error
    assert told in error
    assert f"--scoring {'letter asks' if scoring == 'likelihood' else 'answer judges'}" in error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--scoring", "likelihood", "--mode", "chat"], "takes --mode completions"),
        (["--scoring", "letter", "--max-tokens", "5"], "--max-tokens means nothing with --scoring letter"),
        (["--scoring", "letter", "--temperature", "1"], "--temperature means nothing"),
        (["--scoring", "likelihood", "--thinking"], "--thinking is a matter of chats"),
        (["--scoring", "loud"], "--scoring"),
    ],
)
def test_flags_that_mean_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["eval", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_other_tasks_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text('{"question": "1 + 1", "answer": 2, "check": "number"}\n')
    with stub_server(lambda body, count: (200, chat("2"))) as stub:
        assert main(["eval", "--base-url", stub.url, "--tasks", str(path), "--scoring", "letter"]) == 2
        assert not stub.bodies
    assert "the item 0 of sums is judged by: number" in capsys.readouterr().err
