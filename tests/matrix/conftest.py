"""The folders of the matrix's models, and the kernels that others expect afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qanat.kernels.native import module
from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import REFERENCE
from tests.matrix.models import write_folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not module.is_built():
        pytest.skip(module.why_not())
    place = tmp_path_factory.mktemp("matrix")
    write_folders(place)
    yield place
    choose_providers(1, REFERENCE)
