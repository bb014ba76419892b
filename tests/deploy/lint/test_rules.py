"""Every rule finds what breaks it, and leaves alone what does not."""

from __future__ import annotations

import pytest

import qanat.deploy.lint.engine
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.registry import registered_rules
from qanat.deploy.sources.documents import read_documents
from tests.deploy.lint.examples import BESIDE, EXAMPLES, TOGETHER, Example

NAMES = [example.rule for example in EXAMPLES]


def found(text: str, image: str) -> set[str]:
    name = (
        "guide.md"
        if "```" in text or text.startswith(("部署", "# Guide"))
        else "compose.yaml"
        if text.startswith(("services:", "apiVersion:"))
        else "start.sh"
    )
    documents = read_documents({name: text}, lambda origin, path: BESIDE.get(path))
    return {finding.rule_id for finding in lint(documents, image or None)}


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
def test_a_rule_finds_what_breaks_it(example: Example) -> None:
    assert example.rule in found(example.bad_text, example.image)


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.good], ids=[one.rule for one in EXAMPLES if one.good]
)
def test_a_rule_leaves_alone_what_is_right(example: Example) -> None:
    assert example.rule not in found(example.good_text, example.image)


def guide(model: str, gains: str) -> str:
    return f"# Guide\n\nThis improves throughput by {gains}.\n\n```\nvllm serve {model} -tp 2\n```\n"


@pytest.mark.parametrize(
    ("model", "gains", "is_copied"),
    [
        ("Qwen/Qwen3.5-35B-A3B", "8%, 36% and 1.94 ms", True),
        ("Qwen/Qwen3-32B", "8%, 36% and 1.94 ms", False),
        ("Qwen/Qwen3.5-35B-A3B", "8%, 25% and 0.5 ms", False),
    ],
)
def test_figures_of_another_model_are_found_in_both_guides(model: str, gains: str, is_copied: bool) -> None:
    texts = {"a.md": guide("Qwen/Qwen3-32B", "8%, 36% and 1.94 ms"), "b.md": guide(model, gains)}
    places = [one.place.path for one in lint(read_documents(texts)) if one.rule_id == "TXT007"]
    assert places == (["a.md", "b.md"] if is_copied else [])


def test_every_rule_has_an_example_and_a_check() -> None:
    assert qanat.deploy.lint.engine.lint is lint
    rules = set(load_knowledge().rules)
    assert rules == registered_rules()
    assert rules == {*NAMES, *TOGETHER}
