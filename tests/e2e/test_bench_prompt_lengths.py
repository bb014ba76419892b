"""BEN-006: prompts of `qanat bench serve` have the lengths that were asked for, as the server counts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import main
from tests.support.server_process import ServerProcess

CAN_BE_BUSY = (0, 3)
ENDPOINTS = ("openai", "openai-chat")
NUM_PROMPTS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(["--max-model-len", "1100"]) as running:
        yield running


def prompts_of(server: ServerProcess, folder: Path, length: int, endpoint: str) -> dict[str, Any]:
    """What a run says of its prompts."""
    code = main(
        [
            *("bench", "serve", "--port", str(server.port), "--backend", endpoint, "--num-warmups", "0"),
            *("--num-prompts", str(NUM_PROMPTS), "--input-len", str(length), "--output-len", "1"),
            *("--save-result", "--result-dir", str(folder), "--result-filename", "result.json"),
        ]
    )
    assert code in CAN_BE_BUSY
    result = json.loads((folder / "result.json").read_text())
    assert (result["completed"], result["failed"]) == (NUM_PROMPTS, 0)
    prompts: dict[str, Any] = result["qanat"]["prompts"]
    return prompts


def check(prompts: dict[str, Any], length: int, endpoint: str) -> None:
    """Completions count what was asked; chats add the same to each prompt, which is stated apart."""
    added = prompts["num_added_to_each"]
    assert (prompts["num_compared"], prompts["mean_meant"]) == (NUM_PROMPTS, length)
    assert prompts["mean_counted_by_server"] == length + added
    assert added == 0 if endpoint == "openai" else added > 0


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("length", [1, 10, 1000])
def test_ben_006_the_server_counts_what_was_asked_for(
    server: ServerProcess, tmp_path: Path, length: int, endpoint: str
) -> None:
    check(prompts_of(server, tmp_path, length, endpoint), length, endpoint)


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_ben_006_long_prompts_are_counted_as_asked_for_too(tmp_path: Path, endpoint: str) -> None:
    with ServerProcess(["--max-model-len", "8300"]) as server:
        check(prompts_of(server, tmp_path, 8192, endpoint), 8192, endpoint)
