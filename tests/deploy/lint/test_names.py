"""The nearest known name of a misspelt one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.fixes import apply_edits
from qanat.deploy.lint.names import FlagNames, nearest
from qanat.deploy.sources.documents import read_document

KNOWLEDGE = load_knowledge()
VERSION = must_parse("0.23.0")
FLAGS = sorted(KNOWLEDGE.serve_flags.entries)
VARIABLES = sorted({name for table in KNOWLEDGE.variables() for name in table.entries})
MIN_SHARE = 0.97


def misspelt(name: str) -> list[str]:
    """A letter dropped, doubled, and two swapped, in the middle of a name."""
    at = len(name) // 2
    return [
        name[:at] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
    ]


@pytest.mark.parametrize("known", [FLAGS, VARIABLES], ids=["flags", "variables"])
def test_one_slip_leads_back_to_the_name(known: list[str]) -> None:
    slips = [(name, slip) for name in known[::7] for slip in misspelt(name) if slip not in known]
    found = sum(nearest(slip, known) == name for name, slip in slips)
    assert found >= MIN_SHARE * len(slips)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("--max-model-length", "--max-model-len"),
        ("--max_num_seq", "--max-num-seqs"),
        ("--tensor-parallel", "--tensor-parallel-size"),
        ("--enable-prefix-cache", "--enable-prefix-caching"),
        ("--gpu-mem-utilization", "--gpu-memory-utilization"),
        ("--MAX-MODEL-LEN", "--max-model-len"),
    ],
)
def test_what_people_write(written: str, expected: str) -> None:
    names = FlagNames([(KNOWLEDGE.serve_flags, "")], VERSION)
    assert names.nearest(written) == expected


def test_a_flag_of_another_version_is_not_proposed() -> None:
    names = FlagNames([(KNOWLEDGE.serve_flags, "")], VERSION)
    assert names.nearest("--swap-spaces") != "--swap-space"


@given(st.text(max_size=40))
def test_any_text_has_a_known_neighbour_or_none(text: str) -> None:
    assert nearest(text, FLAGS) in {None, *FLAGS}
    assert nearest(text, []) is None


@pytest.mark.parametrize(
    ("flag", "image", "is_known"),
    [
        ("-ep", "v0.13.0", False),
        ("-ep", "v0.17.0rc1", True),
        ("-sc.method ngram", "v0.18.0", False),
        ("-sc.method ngram", "v0.20.2rc1", True),
        ("-cc.cudagraph_mode NONE", "v0.11.0", False),
        ("--device-memory-utilization 0.9", "v0.23.0", False),
    ],
)
def test_a_short_form_is_younger_than_its_flag(flag: str, image: str, is_known: bool) -> None:
    text = f"vllm serve Qwen/Qwen3-32B -tp 8 {flag}\n"
    found = [one for one in lint([read_document("start.sh", text)], image) if one.rule_id == "CLI011"]
    assert (not found) is is_known
    for one in found:
        fixed = apply_edits(text, one.fix.edits)
        assert "CLI011" not in {one.rule_id for one in lint([read_document("start.sh", fixed)], image)}
