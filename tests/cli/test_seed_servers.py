"""Every serve command of the guides starts and answers, with only `vllm` and the model's path replaced."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.seed_commands import SeedCommand, copied
from tests.support.server_process import ServerProcess

MODEL = Path(__file__).parents[2] / "demo" / "src" / "qanat_demo" / "model"
MODULE = [sys.executable, "-m", "qanat.entrypoints.openai.api_server"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [command for command in copied() if not command.is_role], ids=lambda command: command.name
)
def test_a_serve_command_starts_and_answers(command: SeedCommand) -> None:
    """The guides' functional check: 200 with text, under the name that the command gives the model."""
    name = command.words[command.words.index("--served-model-name") + 1]
    with ServerProcess(
        command.arguments(str(MODEL)), command=MODULE if command.is_module else None
    ) as server:
        body = {"model": name, "prompt": "The future of AI is", "max_tokens": 50, "temperature": 0}
        reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=120)
        assert reply.status_code == 200, server.output
        assert reply.json()["choices"][0]["text"]
        assert "--gpu-memory-utilization" in server.output
