"""The planner's sentences in Chinese: numbers and names stay, and what has no translation stays English."""

from __future__ import annotations

import itertools
import string

import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from qanat.deploy.render.planner_words import chinese_sentences, in_language


def fields(sentence: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(sentence) if name)


def test_translations_keep_every_field() -> None:
    for english, chinese in chinese_sentences().items():
        assert fields(english) == fields(chinese), english
        assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese) or english.startswith("--"), english


def test_every_translation_is_found_by_its_sentence() -> None:
    for english, chinese in chinese_sentences().items():
        values = {name: f"x{number}" for number, name in enumerate(fields(english))}
        assert in_language(english.format(**values), "zh") == chinese.format(**values)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("", ""),
        ("nothing that is known", "nothing that is known"),
        ("as you asked", "按您的要求"),
        (
            "w8a8: all but experts over TP 4, 256 experts over 16 NPUs, with the mtp drafter",
            "w8a8：专家以外的权重按 TP 4 切分，256 个专家分布在 16 个 NPU 上，含 mtp 草稿头",
        ),
        (
            "prefill: The cache has room for the states of 55 sequences, so --max-num-seqs is 55. (a page)",
            "prefill：缓存只能容纳 55 条序列的状态，因此 --max-num-seqs 为 55。(a page)",
        ),
        ("your wish", "您的要求"),
        ("issues 7532, 7595 and 9871 of vllm-ascend", "vllm-ascend 的 issue 7532、7595 和 9871"),
        (
            "transfer engine of Mooncake; PD guide of vllm-ascend",
            "Mooncake 传输引擎；vllm-ascend 的 PD 指南",
        ),
        (
            "The support matrix calls this model experimental on A2. (support matrix of vllm-ascend)",
            "支持矩阵把该模型在 A2 上标为实验性。(vllm-ascend 支持矩阵)",
        ),
        ("with the vision tower, and more", "with the vision tower, and more"),
    ],
)
def test_sentences(english: str, chinese: str) -> None:
    assert in_language(english, "zh") == chinese
    assert in_language(english, "en") == english


def plans() -> list[Plan]:
    wishes = (
        {},
        {"scenario": Scenario.LONG_CONTEXT},
        {"topology": Topology.MULTI_NODE, "nodes": 2},
        {"topology": Topology.DISAGGREGATED},
    )
    found = []
    for model, hardware, more in itertools.product(("Qwen3.5-397B-A17B", "Qwen3-32B"), ("A2", "A3"), wishes):
        try:
            found.append(plan(Wish(model=model, hardware=hardware, **more), load_knowledge()))  # type: ignore[arg-type]
        except ConfigError:
            continue
    return found


def test_every_source_has_a_translation_unless_it_is_a_name() -> None:
    names = ("vLLM", "vllm-ascend distributed/", "vllm-ascend examples/", "vllm-ascend platform.py")
    sources = {choice.source for one in plans() for choice in one.choices}
    for table in ("practices_sizes", "practices_switches", "practices_environment"):
        sources |= {entry.source for entry in load_knowledge().tables[table].entries.values()}
    left = {one for one in sources if in_language(one, "zh") == one}
    assert [one for one in left if one not in names and not one.startswith(names[1:])] == []


def test_warnings_of_disaggregated_plans_are_chinese_with_their_sources() -> None:
    wish = Wish(model="Qwen3.5-397B-A17B", hardware="A3", topology=Topology.DISAGGREGATED)
    warnings = plan(wish, load_knowledge()).warnings
    assert warnings and [one for one in warnings if in_language(one, "zh") == one] == []


def test_most_of_what_the_planner_says_has_a_translation() -> None:
    said: set[str] = set()
    for one in plans():
        said |= {choice.reason for choice in one.choices}
        said |= {choice.changes_if for choice in one.choices if " " in choice.changes_if}
        said |= set(one.warnings)
        said |= {item.how for role in one.roles for item in role.memory.items}
    left = sorted(sentence for sentence in said if in_language(sentence, "zh") == sentence)
    assert len(said) > 60
    assert len(left) <= len(said) // 5, left
