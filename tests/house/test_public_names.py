"""What `import qanat` offers: a list that changes on purpose only, and that costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import qanat
from tests.house.checkout import ROOT

PUBLIC_NAMES = [
    "AsyncEngine",
    "EngineConfig",
    "LLM",
    "SamplingParams",
    "StructuredOutputsParams",
    "__version__",
]


def test_list_of_public_names() -> None:
    assert sorted(qanat.__all__) == PUBLIC_NAMES
    assert dir(qanat) == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(qanat, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="LLLM"):
        qanat.LLLM  # noqa: B018 - reading it is the test


def test_version_is_the_distributions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == qanat.__version__


def test_import_loads_the_standard_library_only() -> None:
    code = "import sys; old = set(sys.modules); import qanat; print(*sorted(set(sys.modules) - old))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.split(".")[0] for name in result.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) == {"qanat"}
