"""Files that are large, no text, no files, or built to keep a reader busy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import qanat.cli.main
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.names import nearest
from qanat.deploy.sources.documents import read_document
from qanat.deploy.sources.launch import read_flags
from qanat.deploy.sources.values import Place, Value


def run(*words: str) -> int:
    return qanat.cli.main.main(["deploy", "lint", *words])


def test_aliases_that_stand_for_too_much_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    (tmp_path / "loop.yaml").write_text("model: &a [*a, *a]\nport: 1\n")
    run(str(tmp_path))
    assert capsys.readouterr().out.count("its aliases stand for too much, or for themselves") == 2


def test_usual_aliases_are_read() -> None:
    text = "x: &x {HCCL_BUFSIZE: 1}\nservices:\n  a:\n    image: vllm-ascend:v0.23.0\n    environment: *x\n"
    assert "ENV023" in {one.rule_id for one in lint([read_document("compose.yaml", text)])}


def test_what_is_no_regular_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo.sh"
    os.mkfifo(fifo)
    assert [run(str(fifo)), run("/dev/zero")] == [2, 2]
    assert capsys.readouterr().err.count("is no regular file") == 2


def test_a_large_file_is_refused_with_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = tmp_path / "large.sh"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert run(str(large)) == 2
    assert "more than 64 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("data", [bytes(range(256)) * 40, b"\x01\x02\xff\xfe\x80ab" * 50])
def test_what_is_no_text_is_a_warning(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(data)
    assert run(str(path)) == 1
    assert "LNT003" in capsys.readouterr().out


def test_line_ends_of_windows_are_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "start.sh"
    path.write_bytes(b"#!/bin/bash\r\nvllm serve Qwen/Qwen3-32B \\\r\n  --port 8000\r\n")
    assert run(str(path)) == 1
    assert "CLI029" in capsys.readouterr().out
    assert run("--fix", str(path)) == 0
    assert path.read_bytes() == b"#!/bin/bash\nvllm serve Qwen/Qwen3-32B \\\n  --port 8000\n"


def test_a_flag_with_control_bytes_is_no_flag_of_vllm() -> None:
    text = "vllm serve Qwen/Qwen3-32B --tensor-paralel-size\x1b[0m 4\n"
    assert "CLI017" in {one.rule_id for one in lint([read_document("start.sh", text)])}


def test_a_line_break_in_a_value_makes_no_flag() -> None:
    place = Place("a", 1, 1, 1, 1, 0, 0)
    words, flags = read_flags((Value("--seed\n1", place),))
    assert (len(words), len(flags)) == (1, 0)


def test_the_same_name_is_looked_for_once() -> None:
    known = ("--port", "--host")
    assert nearest("--prot", known) == nearest("--PROT", known) == "--port"


def test_of_very_many_unknown_flags_only_the_first_get_advice() -> None:
    flags = " ".join(f"--max-num-seq{number}" for number in range(150))
    found = lint([read_document("start.sh", f"vllm serve Qwen/Qwen3-32B {flags}\n")])
    advised = [one for one in found if one.rule_id == "CLI017" and "did you mean" in one.message]
    assert len([one for one in found if one.rule_id == "CLI017"]) == 150
    assert len(advised) == 100
