"""Plans that were written by hand and cannot be rendered: each is told, through the command line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qanat.cli.main import main
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from tests.deploy.plan.example_plans import single_node
from tests.deploy.render.test_serve import with_role


def refused(tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]) -> str:
    """What rendering says of a plan that it refuses."""
    path = tmp_path / "plan.yaml"
    path.write_text(encode_plan(plan), encoding="utf-8")
    assert main(["deploy", "render", str(path), str(tmp_path / "folder")]) == 2
    assert not (tmp_path / "folder").exists()
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["x\ny", "x\ry", "x\ty", "x\u2028y"])
def test_a_served_name_of_several_lines(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = msgspec.structs.replace(single_node(), served_model_name=name)
    assert "holds a line end or another control character" in refused(tmp_path, plan, capsys)


@pytest.mark.parametrize("name", ["api-key", "api_key"])
def test_a_key_that_everybody_could_read(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = with_role(single_node(), flags={**single_node().roles[0].flags, name: "secret"})
    message = refused(tmp_path, plan, capsys)
    assert "would stand readable in scripts" in message and "secret" not in message
