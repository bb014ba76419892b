"""docs/api.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from qanat.engine.metrics import HISTOGRAM_BUCKETS
from qanat.server.fields import IGNORED_FIELDS
from qanat.server.gate import OPEN_PATHS
from qanat.server.metrics import HISTOGRAM_HELP
from qanat.server.requests import ChatRequest, CompletionRequest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
NAMES = set(re.findall(r"[a-z_]{3,}", PAGE)) | {"n"}


def test_every_parameter_is_on_the_page() -> None:
    fields = {*CompletionRequest.__struct_fields__, *ChatRequest.__struct_fields__}
    assert fields - NAMES == set()


def test_every_ignored_field_is_on_the_page() -> None:
    assert IGNORED_FIELDS - NAMES == set()


def test_open_paths_and_metrics_are_on_the_page() -> None:
    assert all(path in PAGE for path in OPEN_PATHS)
    assert all(f"vllm:{name}" in PAGE for name in HISTOGRAM_BUCKETS)
    assert HISTOGRAM_HELP.keys() == HISTOGRAM_BUCKETS.keys()
