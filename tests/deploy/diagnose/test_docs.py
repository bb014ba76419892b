from __future__ import annotations

from pathlib import Path

from qanat.deploy.diagnose.docs import main

ROOT = Path(__file__).parents[3]


def test_the_page_of_signatures_is_current() -> None:
    assert main(["--check", str(ROOT / "docs/reference/deploy-signatures.md")]) == 0


def test_a_page_that_is_not_current_is_told(tmp_path: Path) -> None:
    page = tmp_path / "signatures.md"
    assert main(["--check", str(page)]) == 1
    assert main([str(page)]) == 0 and main(["--check", str(page)]) == 0
