"""Reading a checkpoint's tokenizer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tokenizers import Tokenizer as HfTokenizer

from qanat.core.errors import CheckpointError
from qanat.engine.tokenizer import Tokenizer
from tests.worker.tiny_model import CONFIGS

MODEL = dataclasses.replace(CONFIGS["qwen3"], vocab_size=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner: HfTokenizer = Tokenizer.bytes_only(MODEL)._tokenizer
    inner.enable_truncation(8)
    inner.enable_padding(length=16)
    inner.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_truncation_and_padding_saved_in_the_file_are_left_out(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder, MODEL)
    assert len(tokenizer.encode("a" * 550)) == 550
    assert len(tokenizer.encode("a")) == 1


def test_end_of_sequence_is_the_union_of_what_the_files_say(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": {"content": "!"}}')
    tokenizer = Tokenizer.from_folder(folder, MODEL)
    assert set(tokenizer.eos_token_ids) == {5, tokenizer.token_id("!")}


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_missing_or_broken_file_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match="tokenizer.json"):
        Tokenizer.from_folder(tmp_path, MODEL)
