"""Whatever a script says, checking it ends, every report can be written, and fixes come to an end."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.fixes import apply_edits, chosen_fixes
from qanat.deploy.lint.report import json_report, sarif_report, text_report
from qanat.deploy.sources.documents import read_document, read_documents

RIGHT = Path(__file__).parents[1] / "scripts" / "right"
SCRIPTS = [file.read_text(encoding="utf-8") for file in sorted(RIGHT.rglob("*")) if file.is_file()]
LINES = sorted({line for script in SCRIPTS for line in script.split("\n")})
IMAGES = (None, "v0.11.0", "v0.18.0rc1-a3", "0.23.0", "v0.30.0rc1", "v0.99.0")
PIECES = (
    "'", '"', "\\", "$X", "${", "{", "}", "[", "]", ",", ":", "-", "–", " ", "\n", "0", "-1", "99999999999999999999",
    "1e999", "true", "null", "\x00", "\ud800", "正文", "--headless ", "--no-", "-tp 0 ", "=", "vllm serve m ",
    "export VLLM_USE_V1=1\n", "source a.sh\n", ". ./c.env\n", "docker run --env-file c.env ", "set -a\n", " &\n",
    "env_file: c.env\n", "kind: ConfigMap\n", "docker run ", "# Atlas 800 A2, HDK 25.2.1\n",
    "Qwen/Qwen3.5-35B-A3B ", "# qanat: ignore[CLI001]\n", "--data-parallel-size 0 ", "kv_producer",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A script that is right, with pieces put in and taken out."""
    text = draw(st.sampled_from(SCRIPTS))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 12)) :]
    return text


MIXED = st.lists(st.sampled_from(LINES), max_size=40).map("\n".join)
FILES = st.lists(
    st.tuples(st.sampled_from(("a.sh", "b.md", "c.yaml", "c.env", "d")), damaged() | MIXED), max_size=3
)


@settings(max_examples=150, deadline=None)
@given(FILES, st.sampled_from(IMAGES))
def test_checking_ends_and_can_be_reported(files: list[tuple[str, str]], image: str | None) -> None:
    texts = dict(files)
    findings = lint(read_documents(texts), image)
    for finding in findings:
        place = finding.place
        assert 0 <= place.start <= place.end <= len(texts[place.path])
    text_report(findings, len(texts), len(texts))
    json.dumps(
        [json_report(findings, len(texts), len(texts)), sarif_report(findings, load_knowledge().rules, "1")]
    )


@settings(max_examples=100, deadline=None)
@given(damaged())
def test_fixes_change_something_and_come_to_an_end(text: str) -> None:
    for _ in range(30):
        fixes = chosen_fixes(lint([read_document("a.sh", text)]))
        if not fixes:
            return
        fixed = apply_edits(text, [edit for finding in fixes for edit in finding.fix.edits])
        assert fixed != text
        text = fixed
    raise AssertionError("every fix leaves another one to make")
