"""Which changes of Qanat make packed weights of before useless."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import qanat
from qanat.models.recipe import recipe_digest

PACKAGE = Path(qanat.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("kernels", "layers", "models", "quant"):
        shutil.copytree(PACKAGE / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("kernels/quantised.py", "GROUP_SIZE = 32", "GROUP_SIZE = 64"),
        ("quant/convert.py", "LARGEST = 127", "LARGEST = 126"),
        ("quant/own.py", '"lm_head", ', ""),
        ("quant/formats/nibbles.py", "import annotations", "import annotations, division"),
        ("kernels/quantised.py", "import annotations", "import annotations, division"),
    ],
)
def test_another_rule_gives_another_digest(copy: Path, file: str, before: str, after: str) -> None:
    expected = recipe_digest(copy)
    assert expected == recipe_digest()
    text = (copy / file).read_text()
    assert before in text
    (copy / file).write_text(text.replace(before, after, 1))
    assert recipe_digest.__wrapped__(copy) != expected


def test_what_makes_no_weights_counts_for_nothing(copy: Path) -> None:
    expected = recipe_digest(copy)
    (copy / "kernels" / "ops.py").write_text("")
    (copy / "quant" / "notes.txt").write_text("not a program")
    assert recipe_digest.__wrapped__(copy) == expected
    (copy / "quant" / "own.py").rename(copy / "quant" / "owned.py")
    assert recipe_digest.__wrapped__(copy) != expected
