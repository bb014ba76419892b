from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from qanat.core.errors import ConfigError
from qanat.evals.item import EvalItem
from qanat.evals.task_files import read_task_file, read_task_files

GSM8K = {"question": "2 and 3?", "answer": "2+3=<<2+3=5>>5\n#### 5"}
MMLU = {"question": "Which?", "choices": ["x", "y"], "answer": 1, "subject": "logic"}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def f():\n",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1",
    "entry_point": "f",
}


def items_of(folder: Path, name: str, content: object) -> tuple[EvalItem, ...]:
    path = folder / name
    if isinstance(content, list):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    path.write_text(str(content), encoding="utf-8")
    return read_task_file(path).items


def test_gsm8k(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "gsm8k_test.jsonl", [GSM8K])
    assert (item.task, item.item_id, item.check, item.answers) == ("gsm8k", "0", "number", ("5",))
    assert item.solution.endswith("The answer is 5.")


def test_choices_as_json(tmp_path: Path) -> None:
    lettered = {"id": 7, "question": "哪个?", "A": "x", "B": "y", "C": "z", "answer": "C"}
    first, second = items_of(tmp_path, "mixed.jsonl", [MMLU, lettered])
    assert (first.task, first.answers, first.choices) == ("logic", ("B",), ("x", "y"))
    assert (second.task, second.item_id, second.answers) == ("mixed", "7", ("C",))
    assert len(second.choices) == 3
    arc = {"question": "?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"}
    assert items_of(tmp_path, "arc.jsonl", [arc])[0].answers == ("B",)


def test_choices_as_csv(tmp_path: Path) -> None:
    (plain,) = items_of(tmp_path, "law_val.csv", '"Which, then?",a,b,c,d,B\n')
    assert (plain.task, plain.question, plain.choices, plain.answers) == (
        "law",
        "Which, then?",
        tuple("abcd"),
        ("B",),
    )
    headed = "\ufeffid,question,A,B,C,D,answer,explanation\n3,Q,a,b,c,d,D,\n"
    (ceval,) = items_of(tmp_path, "law_dev.csv", headed)
    assert (ceval.task, ceval.item_id, ceval.answers) == ("law", "3", ("D",))


def test_humaneval(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "HumanEval.jsonl", [HUMANEVAL])
    assert item.item_id == "HumanEval/0"
    assert item.code is not None
    assert item.code.entry_point == "f"


def test_custom(tmp_path: Path) -> None:
    rows = [
        {"question": "Say yes", "answer": ["yes", "Yes"]},
        {
            "question": "Number",
            "answer": 4,
            "check": "number",
            "task": "sums",
            "max_tokens": 9,
            "thinking": False,
        },
        {"question": "Pick", "choices": ["x", "y"], "answer": "y", "check": "choice"},
    ]
    first, second, third = items_of(tmp_path, "own.jsonl", rows)
    assert (first.check, first.answers) == ("exact", ("yes", "Yes"))
    assert (second.task, second.answers, second.max_tokens, second.is_thinking) == ("sums", ("4",), 9, False)
    assert third.answers == ("B",)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", '{"question": "x", "answer": "no mark"}\n{"question": \n', "a.jsonl:2: no valid JSON"),
        ("a.jsonl", '["x"]\n', "a.jsonl:1: a row is a JSON object"),
        ("a.jsonl", "", "holds no items"),
        ("a.jsonl", '{"text": "x"}\n', "columns text belong to no known form"),
        ("a.jsonl", [GSM8K, {"question": "x", "answer": "5"}], 'a.jsonl:2: "answer" has no ####'),
        ("a.jsonl", [{**MMLU, "answer": 2}], "none of the 2 choices"),
        ("a.jsonl", [{**MMLU, "choices": ["x"]}], "there are 1 choices"),
        ("a.csv", "question,A,B,answer\nx,1,2,\n", "published without answers"),
        ("a.csv", "question,A,B,answer\nx,1,2\n", "a.csv:2: 3 cells, where there are 4 columns"),
        ("a.jsonl", [{"question": "x", "answer": "y", "check": "best"}], "not one of number, choice"),
        (
            "a.jsonl",
            [{"question": "x", "answer": "y", "check": "exact", "extra": 1}],
            "extra: not among the keys",
        ),
        (
            "a.jsonl",
            [{"question": "x", "answer": "y", "check": "exact", "thinking": "on"}],
            "neither true nor false",
        ),
        ("a.jsonl", [{**HUMANEVAL, "entry_point": "f()"}], "is no name of a function"),
    ],
)
def test_faults_are_named_with_their_place(tmp_path: Path, name: str, content: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        items_of(tmp_path, name, content)
    assert told in caught.value.message


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "HumanEval.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(HUMANEVAL).encode()))
    assert read_task_file(path).items[0].task == "HumanEval"
    assert [file.path for file in read_task_files([str(tmp_path)])] == [path]
    for content in (path.read_bytes()[:-9], b"text", gzip.compress(b"\xff\xff")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read"):
            read_task_file(path)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    items_of(tmp_path, "b.jsonl", [GSM8K])
    items_of(tmp_path, "a.csv", "Q,x,y,A\n")
    assert [file.path.name for file in read_task_files([str(tmp_path)])] == ["a.csv", "b.jsonl"]
    with pytest.raises(ConfigError, match="no such file"):
        read_task_files([str(tmp_path / "c.jsonl")])
    with pytest.raises(ConfigError, match="ends with none of"):
        read_task_files([str(tmp_path / "c.parquet")])
    with pytest.raises(ConfigError, match="is there twice"):
        read_task_files([str(tmp_path / "b.jsonl")] * 2)


def test_the_digest_of_an_item_is_that_of_what_is_asked(tmp_path: Path) -> None:
    (one,) = items_of(tmp_path, "a.jsonl", [GSM8K])
    (same,) = items_of(tmp_path, "a.jsonl", [{**GSM8K, "extra": 1}])
    (other,) = items_of(tmp_path, "a.jsonl", [{**GSM8K, "question": "3 and 2?"}])
    assert one.digest() == same.digest() != other.digest()
