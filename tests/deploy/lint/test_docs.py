from __future__ import annotations

from pathlib import Path

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.docs import main, render

ROOT = Path(__file__).parents[3]


def test_the_page_of_rules_is_current() -> None:
    assert main(["--check", str(ROOT / "docs/reference/deploy-rules.md")]) == 0


def test_every_rule_is_on_the_page_once() -> None:
    page = render()
    assert [page.count(f"### {name}: ") for name in load_knowledge().rules] == [1] * len(
        load_knowledge().rules
    )


def test_a_page_that_is_not_current_is_told(tmp_path: Path) -> None:
    page = tmp_path / "rules.md"
    assert main(["--check", str(page)]) == 1
    assert main([str(page)]) == 0 and main(["--check", str(page)]) == 0
    page.write_text(page.read_text() + "x")
    assert main(["--check", str(page)]) == 1
    assert main([]) == 2
