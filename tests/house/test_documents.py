"""The two READMEs say the same, links lead somewhere, and no file betrays the machine that it was written on."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.house.checkout import ROOT, repository_files

ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(`+)[^\n]+?\1")
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
# Written in pieces, so that this file does not match itself.
# The home of containers may be named: caches and shell files of images lie there.
TRACES = re.compile(
    "/"
    + r"work/|/"
    + r"root/(?!\.cache\b|\.bashrc\b)|/"
    + r"tmp/[a-z]|python"
    + r"hosted\.org|pypi\."
    + "org|/"
    + "opt/pypi"
)


def headings(text: str) -> list[int]:
    prose = CODE_BLOCK.sub("", text)
    return [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]


def tables(text: str) -> list[int]:
    """Columns of every table row, in order."""
    return [line.count("|") for line in CODE_BLOCK.sub("", text).splitlines() if line.startswith("|")]


def code_without_comments(text: str) -> list[tuple[str, str]]:
    return [(language, re.sub(r"\s*#.*", "", body)) for language, body in CODE_BLOCK.findall(text)]


def test_readmes_have_the_same_sections() -> None:
    assert headings(ENGLISH) == headings(CHINESE)


def test_readmes_have_the_same_code() -> None:
    assert code_without_comments(ENGLISH) == code_without_comments(CHINESE)
    assert len(code_without_comments(ENGLISH)) >= 4


def test_readmes_have_the_same_tables() -> None:
    assert tables(ENGLISH) == tables(CHINESE)


def test_status_marks_agree() -> None:
    marks = {"yes": "是", "not yet": "尚未"}
    english = re.findall(r"\| (yes|not yet) \|", ENGLISH)
    chinese = re.findall(r"\| (是|尚未) \|", CHINESE)
    assert [marks[mark] for mark in english] == chinese
    assert {"yes", "not yet"} <= set(english)


@pytest.mark.parametrize("path", repository_files("*.md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path) -> None:
    prose = INLINE_CODE.sub("", CODE_BLOCK.sub("", path.read_text(encoding="utf-8")))
    for target, _ in LINK.findall(prose):
        assert (path.parent / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", str(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_no_file_names_the_machine_it_was_written_on() -> None:
    found = []
    for path in repository_files():
        if path.stat().st_size > 1_000_000:
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [(str(path.relative_to(ROOT)), match) for match in TRACES.findall(text)]
    assert found == []


def test_scripts_are_executable() -> None:
    for name in ("setup", "serve", "test", "check"):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111, name
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_request_trace_names_what_exists() -> None:
    """Every path is a file; every class, function and method occurs in the package's definitions."""
    text = (ROOT / "docs" / "request-trace.md").read_text()
    terms = re.findall(r"`([^`\n]+)`", CODE_BLOCK.sub("", text))
    paths = [term for term in terms if term.endswith(".py")]
    names = [term for term in terms if re.fullmatch(r"[A-Z]\w+(\.\w+)?|[a-z]+(_[a-z]+)+", term)]
    assert len(paths) > 15
    assert len(names) > 40
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "qanat").rglob("*.py"))
    defined = re.findall(r'(?:class|def) (\w+)|^    (\w+):|code = "(\w+)"', source, re.MULTILINE)
    known = {name for names_of_one in defined for name in names_of_one}
    assert [path for path in paths if not (ROOT / "src" / "qanat" / path).is_file()] == []
    assert [name for name in names if not set(name.split(".")) <= known] == []
