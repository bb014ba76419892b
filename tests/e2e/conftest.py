"""The demo model and one running server for all tests that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import qanat_demo

from tests.support.server_process import ServerProcess


@pytest.fixture(scope="session")
def demo_model() -> Path:
    return Path(qanat_demo.model_path())


@pytest.fixture(scope="session")
def demo_server(demo_model: Path) -> Iterator[ServerProcess]:
    arguments = [str(demo_model), "--served-model-name", "demo", "qwen3.5", "--max-num-seqs", "16"]
    with ServerProcess(arguments) as server:
        yield server


@pytest.fixture
def client(demo_server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{demo_server.base_url}/v1", api_key="none", max_retries=0)
