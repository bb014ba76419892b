"""Each rule of scripts/house_rules.py finds the fault that it is there for, and nothing in innocent code."""

from __future__ import annotations

import pytest

from tests.house.checkout import ROOT, load_script

house_rules = load_script("house_rules")


def messages(path: str, text: str) -> list[str]:
    return [fault.message for fault in house_rules.check_file(path, text)]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/qanat/engine/a.py", "x = 1\n" * 401, "401 lines"),
        ("src/qanat/engine/a.py", "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
        ("src/qanat/engine/a.py", "x = 1  # TO" + "DO later", "unfinished"),
        ("src/qanat/engine/a.py", "import os\nx = os.environ['A']", "os.environ"),
        ("src/qanat/engine/a.py", "from os import getenv", "os.getenv"),
        ("src/qanat/layers/a.py", "import torch\nx = torch.cuda.is_available()", "torch.cuda"),
        ("src/qanat/layers/a.py", "import triton.language as tl", "triton"),
        ("src/qanat/models/a.py", "from transformers import AutoModel", "transformers"),
        ("src/qanat/cache/a.py", "def f():\n    import torch", "without torch"),
        ("src/qanat/server/a.py", "from torch.nn import Module", "without torch"),
    ],
)
def test_fault_is_found(path: str, text: str, expected: str) -> None:
    found = messages(path, text)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/qanat/engine/a.py", "x = 1\n" * 400),
        ("src/qanat/engine/a.py", "def f():\n" + "    x = 1\n" * 59),
        ("src/qanat/kernels/a.py", "def f():\n" + "    x = 1\n" * 100),
        ("src/qanat/config/env.py", "import os\nx = os.environ"),
        ("src/qanat/platforms/a.py", "import torch\nx = torch.cuda.is_available()"),
        ("src/qanat/models/a.py", "import torch\nx = torch.zeros(1)"),
        ("src/qanat/server/a.py", "import os\nx = os.getpid()"),
        ("src/qanat/server/a.py", '"""Nothing of torch.cuda or os.environ is used here."""'),
    ],
)
def test_innocent_code_passes(path: str, text: str) -> None:
    assert messages(path, text) == []


def test_script_fails_on_a_fault_and_names_its_place(tmp_path, capsys) -> None:
    bad = tmp_path / "src" / "qanat" / "cache" / "spec.py"
    bad.parent.mkdir(parents=True)
    bad.write_text("import msgspec\nimport torch\n")
    assert house_rules.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("src/qanat/cache/spec.py:2: ")


def test_rules_name_folders_that_exist() -> None:
    assert (ROOT / house_rules.ENVIRONMENT_FILE).is_file()
    for folder in (*house_rules.DEVICE_FOLDERS, *(f"src/qanat/{name}" for name in house_rules.BASE_FOLDERS)):
        assert (ROOT / folder).is_dir(), folder
