"""The files of the knowledge base are read strictly."""

from __future__ import annotations

import re

import pytest

from qanat.deploy.knowledge.load import KnowledgeError, build_knowledge, load_knowledge
from qanat.deploy.knowledge.versions import must_parse

HEAD = "about: a\nkind: release\nsource: s\nconfidence: source\nentries:\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}  - {{name: 0.1.0, vllm: 0.1.0}}\n", r"new\.yaml: entry 1 \(0\.1\.0\): .*`date`"),
        (f"{HEAD}  - {{name: 0.1.0, vllm: 0.1.0, date: a, color: red}}\n", r"entry 1 .*`color`"),
        (f"{HEAD}  - {{name: 0.1.0, vllm: 0.1.0, date: a, confidence: rumour}}\n", "rumour"),
        (f"{HEAD}  - {{name: a, vllm: b, date: c}}\n  - {{name: a, vllm: b, date: c}}\n", "stands twice"),
        ("about: a\n", r"new\.yaml: .*missing required field"),
        (HEAD.replace("release", "rumour") + "  []\n", r"new\.yaml: 'rumour'"),
        ("{", r"new\.yaml: "),
    ],
)
def test_a_fault_names_its_file_and_entry(text: str, message: str) -> None:
    with pytest.raises(KnowledgeError, match=message):
        build_knowledge({"new.yaml": text})


def test_a_lifetime_may_not_end_before_it_begins() -> None:
    text = (
        "about: a\nkind: env_var\nsamples: [0.1.0]\nsource: s\nconfidence: source\n"
        "entries:\n  - {name: A, owner: o, since: 0.9.0, until: 0.8.0}\n"
    )
    with pytest.raises(KnowledgeError, match=r"ends \(0\.8\.0\) before it begins \(0\.9\.0\)"):
        build_knowledge({"new.yaml": text})


def test_an_entry_may_say_more_about_its_source_than_its_file() -> None:
    text = f"{HEAD}  - {{name: 0.1.0, vllm: 0.1.0, date: a, confidence: unverified}}\n"
    (release,) = build_knowledge({"new.yaml": text}).releases
    assert (release.source, release.confidence) == ("s", "unverified")


def test_every_entry_says_where_it_comes_from() -> None:
    num = 0
    for table, entry in load_knowledge().entries():
        assert entry.source and entry.confidence, (table, entry.name)
        num += 1
    assert num > 1500


def test_every_sentence_of_a_rule_is_one() -> None:
    for rule in load_knowledge().rules.values():
        for sentence in (rule.when, rule.effect):
            assert sentence.endswith("."), (rule.name, sentence)
        assert re.fullmatch(r"[A-Z]+\d{3}", rule.name)
        assert not rule.title.endswith(".")


def test_the_assumed_release_is_the_newest_stable_one() -> None:
    knowledge = load_knowledge()
    assert knowledge.newest_stable.is_stable
    for release in knowledge.releases:
        assert must_parse(release.vllm) == must_parse(release.name).base
