"""`qanat deploy lint`: scripts, manifests and guides checked before they run."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qanat.cli.command import Command
from qanat.cli.deploy_actions.reading import read_action, say
from qanat.cli.terminal import tell
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.lint.finding import Finding
    from qanat.deploy.sources.launch import Document

STANDARD_INPUT = "-"
SUFFIXES = (".sh", ".bash", ".md", ".markdown", ".rst", ".txt", ".yaml", ".yml")
"""Files that are taken from a folder; a file that is named is always read."""
FOUND = 1
"""Exit code where something was found that asks for a change."""


@dataclass(frozen=True, kw_only=True)
class LintOptions:
    """Lint."""

    image: str | None = option(
        Kind.TEXT,
        None,
        "Image, tag or version of vllm-ascend that runs, e.g. v0.18.0rc1-a3. Default: what the files say; where they "
        "say nothing, the newest stable release.",
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON.")
    sarif: bool = option(Kind.SWITCH, False, "Write SARIF 2.1.0, which code review services read.")
    fix: bool = option(
        Kind.SWITCH,
        False,
        "Apply the fixes that are safe, then report what is left. Files are replaced in one step.",
    )


COMMAND = Command(
    name="deploy lint",
    summary="Check scripts, manifests and guides for vLLM-Ascend before they run.",
    description=(
        "Reads shell scripts, docker commands, Compose and Kubernetes files, settings files and guides (Markdown or\n"
        "plain text), and checks names and values against the version of vllm-ascend that runs: flags, variables,\n"
        "JSON arguments, host settings, and what files say about each other, so name all files of a deployment\n"
        "together. A folder stands for the scripts, manifests and guides in it, - for standard input.\n"
        "Exit codes: 0 nothing found (info aside), 1 something found, 2 the command line is at fault.\n"
        "A comment `# qanat: ignore[RULE]` silences a rule on its line or on the command below."
    ),
    examples=(
        "qanat deploy lint run_p.sh run_d.sh proxy.sh",
        "qanat deploy lint guide.md --image v0.18.0rc1-a3 --fix",
        "qanat deploy lint deployments/ --sarif > findings.sarif",
    ),
    groups=(),
    own=LintOptions,
    word="FILE...",
    word_help="Files or folders.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy lint`; returns the exit code.

    Raises:
        ConfigError: no file, one that cannot be read, flags that exclude each other, or an image without a version.
    """
    options, words = _read(arguments)
    from qanat.deploy.lint import report
    from qanat.deploy.sources.documents import read_document

    documents = []
    with _without_collector():
        for path, text in dict(_texts(words)).items():
            documents.append(read_document(path, text))
        findings = _lint(documents, options.image)
    if options.fix:
        findings = _fix(documents, findings, options.image)
    if options.json:
        say(json.dumps(report.json_report(findings, len(documents)), indent=2, ensure_ascii=False))
    elif options.sarif:
        from qanat import __version__
        from qanat.deploy.knowledge.load import load_knowledge

        sarif = report.sarif_report(findings, load_knowledge().rules, __version__)
        say(json.dumps(sarif, indent=2, ensure_ascii=False))
    else:
        say(report.text_report(findings, len(documents)))
    return FOUND if report.has_faults(findings) else 0


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Facts of a thousand files live until the end: looking for garbage among them takes half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read(arguments: Sequence[str]) -> tuple[LintOptions, tuple[str, ...]]:
    options, words = read_action(COMMAND, LintOptions, arguments)
    if options.json and options.sarif:
        raise ConfigError("--json and --sarif are two forms of one report; leave one out.", param="--sarif")
    if not words:
        raise ConfigError("name the files to check, e.g. qanat deploy lint run.sh; - reads standard input.")
    if options.fix and STANDARD_INPUT in words:
        raise ConfigError("--fix changes files; standard input is none.", param="--fix")
    return options, words


def _texts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and content of every file, each once."""
    from qanat.deploy.lint.fixes import decode, read_file

    for word in words:
        if word == STANDARD_INPUT:
            yield "<stdin>", decode(sys.stdin.buffer.read())
            continue
        path = Path(word)
        files = [path]
        if path.is_dir():
            files = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
        for file in files:
            try:
                yield str(file), read_file(file)
            except OSError as error:
                raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None


def _lint(documents: Sequence[Document], image: str | None) -> list[Finding]:
    from qanat.deploy.lint.engine import ImageError, lint

    try:
        return lint(documents, image)
    except ImageError as error:
        raise ConfigError(f"--image {error}", param="--image") from None


def _fix(documents: Sequence[Document], findings: Sequence[Finding], image: str | None) -> list[Finding]:
    """Writes files with what is safe; returns what is left.

    Raises:
        ConfigError: a file cannot be written.
    """
    from qanat.deploy.lint.fixes import apply_edits, chosen_fixes, write_file
    from qanat.deploy.sources.documents import read_document

    fixes = chosen_fixes(findings)
    edits = [edit for finding in fixes for edit in finding.fix.edits]
    changed = [
        read_document(document.path, apply_edits(document.text, own)) if own else document
        for document in documents
        for own in [[edit for edit in edits if edit.place.path == document.path]]
    ]
    left = _lint(changed, image)
    if _num_faults(left) > _num_faults(findings):
        tell("the fixes together would leave more findings than before; nothing was changed")
        return list(findings)
    written = [after for before, after in zip(documents, changed, strict=True) if after.text != before.text]
    for document in written:
        try:
            write_file(Path(document.path), document.text)
        except OSError as error:
            raise ConfigError(f"{document.path} cannot be written: {error.strerror or error}") from None
    tell(f"fixed: {len(fixes)} of {len(findings)}; files changed: {len(written)}")
    return left


def _num_faults(findings: Sequence[Finding]) -> int:
    return sum(finding.severity.value != "info" for finding in findings)
