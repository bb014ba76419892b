"""Every serve command of the guides, with only `vllm` and the model's path replaced, starts and answers."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from qanat.config.model_config import ModelConfig
from tests.cli.seed_commands import SeedCommand, copied
from tests.support.eagle3 import write_draft
from tests.support.server_process import COMMAND, ServerProcess, run_command

PLAIN = [command for command in copied() if not command.is_role]
ROLES = [command for command in copied() if command.is_role]
MODULE = [sys.executable, "-m", "qanat.entrypoints.openai.api_server"]


def on_loopback(arguments: list[str]) -> list[str]:
    """Placeholders for an address of the cluster and the address of every network become the loopback one."""
    if "--host" in arguments:
        arguments[arguments.index("--host") + 1] = "127.0.0.1"
    return arguments


@pytest.mark.slow
@pytest.mark.parametrize("command", PLAIN, ids=lambda command: command.name)
def test_a_serve_command_starts_and_answers(command: SeedCommand, demo_model: Path, tmp_path: Path) -> None:
    words = list(command.words)
    name = words[words.index("--served-model-name") + 1]
    launcher = MODULE if command.is_module else [*COMMAND, "serve"]
    draft = tmp_path / "draft"
    if command.draft:
        write_draft(draft, ModelConfig.from_folder(demo_model), "speculators", 400)
    arguments = on_loopback(command.arguments(str(demo_model), str(draft)))
    with ServerProcess(arguments, command=launcher) as server:
        body = {"model": name, "prompt": "The future of AI is", "max_tokens": 50, "temperature": 0}
        response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=120)
        assert response.status_code == 200
        assert response.json()["choices"][0]["text"]
        assert "--gpu-memory-utilization" in server.output
        assert server.stop() == 0
        assert "Traceback" not in server.output


@pytest.mark.slow
@pytest.mark.parametrize("command", ROLES, ids=lambda command: command.name)
def test_a_role_is_refused_with_the_reason(command: SeedCommand, demo_model: Path) -> None:
    result = run_command(["serve", *on_loopback(command.arguments(str(demo_model)))])
    assert result.returncode == 2
    assert "--kv-transfer-config" in result.stderr
    assert "not built yet" in result.stderr
