"""Prefill and decode that have the role of one side."""

from __future__ import annotations

import pytest

from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_documents
from tests.deploy.lint.examples import SMALL, expand, transfer


def found(**roles: str) -> dict[str, str]:
    """Rules of two sides, by the name of the file that they are found in."""
    texts = {
        f"{name.replace('__', '/')}.sh": expand(f"{SMALL} -tp 8 --port 8100 {transfer(role)}\n")
        for name, role in roles.items()
    }
    findings = lint(read_documents(texts, None), "v0.23.0")
    return {one.place.path: one.rule_id for one in findings if one.rule_id in ("PD025", "PD026")}


P, D = "kv_producer", "kv_consumer"


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ({"prefill": P, "decode": D}, {}),
        ({"prefill": D, "decode": D}, {"prefill.sh": "PD025"}),
        ({"prefill": D}, {"prefill.sh": "PD025"}),
        ({"node_decoder_1": P, "node_decoder_2": D}, {"node_decoder_1.sh": "PD025"}),
        ({"run_p": P, "run_d": P}, {"run_d.sh": "PD025"}),
        ({"run_p": D, "run_d": P}, {"run_p.sh": "PD025", "run_d.sh": "PD025"}),
        ({"a__run_p": D, "b__run_d": D}, {"b/run_d.sh": "PD026"}),
        ({"run_d": P}, {}),
        ({"prefill_decode": P, "other": D}, {}),
        ({"one": D, "two": D}, {"two.sh": "PD026"}),
        ({"one": D, "two": D, "three": "kv_both"}, {}),
        ({"one": D}, {}),
    ],
)
def test_names_of_files_say_which_side_they_are(roles: dict[str, str], expected: dict[str, str]) -> None:
    assert found(**roles) == expected
