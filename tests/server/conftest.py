from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.app_server import AppServer, serving


@pytest.fixture(scope="module")
def server() -> Iterator[AppServer]:
    with serving() as running:
        yield running
        running.wait_until_idle()


@pytest.fixture(scope="module")
def qwen3_server() -> Iterator[AppServer]:
    """A model whose template leaves the opening of a thinking block to the model."""
    with serving(model_family="qwen3") as running:
        yield running
        running.wait_until_idle()
