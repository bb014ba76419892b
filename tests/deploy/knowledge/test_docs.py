"""The page of the knowledge base against what there is."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from qanat.deploy.knowledge.load import load_knowledge

ROOT = Path(__file__).parents[3]
DATA = ROOT / "src/qanat/deploy/knowledge/data"
KINDS = ROOT / "src/qanat/deploy/knowledge/kinds"
PAGE = (ROOT / "docs/knowledge-base.md").read_text(encoding="utf-8")


def test_every_file_has_its_row_and_every_row_its_files() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z_*]+\.(?:yaml|json))`", row)]
    files = [file.name for file in DATA.iterdir() if file.suffix in (".yaml", ".json")]
    assert [name for name in files if sum(fnmatch(name, pattern) for pattern in named) != 1] == []
    assert [pattern for pattern in named if not any(fnmatch(name, pattern) for name in files)] == []
    assert len(files) == len(load_knowledge().tables)


def test_every_subject_of_kinds_is_named() -> None:
    subjects = {file.stem for file in KINDS.glob("*.py")} - {"__init__"}
    listed = re.search(r"module for each subject:([^.]*)\.", PAGE)
    assert listed is not None and set(re.split(r",\s*", listed.group(1).strip())) == subjects
