"""`qanat plan` says of every kind of quantised weight what this processor runs in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from qanat.cli.main import main
from tests.models.tiny import FAMILIES, write_checkpoint
from tests.support.quantised_checkpoints import FORMATS, Format, quantise_folder

ASCEND = [form for form in FORMATS if form.kind]
PLAIN = next(family for family in FAMILIES if family.name == "qwen3-untied")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    write_checkpoint(PLAIN, folder, torch.float32)
    return folder


@pytest.mark.parametrize("form", ASCEND, ids=[form.name for form in ASCEND])
def test_a_kind_is_named_with_what_becomes_of_it(
    form: Format, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantise_folder(plain, tmp_path / "model", form)
    assert main(["plan", str(tmp_path / "model"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (kind,) = [each for each in report["weights"] if each["name"] == form.kind]
    assert kind["stored"] == form.stored and kind["num_matrices"] > 1
    (said,) = [each for each in report["decisions"] if each["wanted"] == form.kind]
    if "MXFP" in form.kind:
        assert "microscaled floats become int8" in said["why"] and "rounded anew" in said["why"]
