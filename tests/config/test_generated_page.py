from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PAGES = [
    "qanat.config.docs",
    "qanat.deploy.diagnose.docs",
    "qanat.deploy.lint.docs",
    "qanat.deploy.preflight.docs",
]


@pytest.mark.parametrize("module", PAGES)
def test_no_option_is_taken_for_the_name_of_a_page(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module(module).main
    assert main(["--help"]) == 0 and main(["-h"]) == 0
    assert f"usage: python -m {module}" in capsys.readouterr().out
    for wrong in (["--chek", "page.md"], ["--chek"], ["-x"], ["--check"], [], ["a.md", "b.md"]):
        assert main(wrong) == 2
        assert f"usage: python -m {module}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
