from __future__ import annotations

from pathlib import Path

import pytest

from qanat.config.docs import OTHER_HONOURED, main, render
from qanat.config.engine_config import OPTIONS
from qanat.config.env import known_variables
from qanat.config.honour import STAND_INS
from qanat.config.known_flags import known_flags

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flags.md"


def test_the_page_is_current() -> None:
    assert main(["--check", str(PAGE)]) == 0


def test_the_page_has_every_flag_and_variable() -> None:
    text = render()
    assert all(
        f"`{spelling}`" in text for option in OPTIONS.values() for spelling in (option.flag, *option.aliases)
    )
    assert all(f"`--{name}`" in text for name in known_flags())
    variables = known_variables()
    assert all(f"`{name}`" in text for name in (*variables.said, *variables.honoured))


def test_honoured_variables_are_all_described() -> None:
    described = {stand_in.variable for stand_in in STAND_INS} | {name for name, _ in OTHER_HONOURED}
    assert described == known_variables().honoured


def test_rows_of_tables_have_as_many_cells_as_their_heads() -> None:
    width = 0
    for line in render().splitlines():
        cells = line.replace("\\|", "").count("|")
        width = 0 if not line.startswith("|") else width or cells
        assert not width or cells == width, line


def test_a_stale_page_is_found_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "reference" / "flags.md"
    assert main(["--check", str(page)]) == 1
    assert main([str(page)]) == 0
    assert main(["--check", str(page)]) == 0
    page.write_text(page.read_text() + "more")
    assert main(["--check", str(page)]) == 1
    assert "is not current; run: python -m qanat.config.docs" in capsys.readouterr().err
    assert main([]) == 2
