"""Runs the checks over documents and makes findings of what they report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import ImageTag, Version, is_in_range, must_parse, parse_image
from qanat.deploy.lint import rules
from qanat.deploy.lint.files import DocumentView, FileSet, Versions, folder_of, used_names, view_document
from qanat.deploy.lint.finding import Finding, Fix
from qanat.deploy.lint.ignore import Ignores
from qanat.deploy.lint.registry import Hit, on_document, on_files, on_flags, on_server
from qanat.deploy.lint.view import chip_by_suffix
from qanat.deploy.sources.launch import Document

RANKS = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
rules.load()


class ImageError(ValueError):
    """The image that was named has no version that can be read; the message says what is expected."""


def lint(documents: Sequence[Document], image: str | None = None) -> list[Finding]:
    """Checks documents together and returns what was found, in order of file and line.

    Args:
        documents: read files; rules across files look at all of them.
        image: image, tag or version of vllm-ascend that runs; a suffix such as -a3 says for which chip. None to go by
            what the files say, and by the newest stable release where they say nothing.

    Raises:
        ImageError: no version can be read from `image`.
    """
    knowledge = load_knowledge()
    tag = parse_image(image) if image is not None else None
    if image is not None and tag is None:
        raise ImageError(f"{image!r} names no version of vllm-ascend; expected something like v0.18.0rc1-a3")
    views = _views(documents, knowledge, tag)
    findings: list[Finding] = []
    for view in views:
        found = list(_check_document(view))
        claim = view.versions.contradicted_by
        if claim is not None:
            claimed = Versions(view.document, claim.version, claim.version, chip=view.versions.chip)
            second = _check_document(view_document(view.document, knowledge, claimed, view.used_names))
            found = _merge(found, list(second))
        findings += found
    findings += _findings(_run_files(FileSet(views, knowledge)), knowledge, views)
    ignores = {document.path: Ignores(document) for document in documents}
    for ignore in ignores.values():
        findings += _findings(ignore.unknown(knowledge.rules), knowledge, views)
    unique = {(finding.rule_id, finding.place): finding for finding in reversed(findings)}
    kept = [finding for finding in unique.values() if not ignores[finding.place.path].covers(finding)]
    return sorted(kept, key=lambda finding: finding.sort_key)


def _views(documents: Sequence[Document], knowledge: Knowledge, tag: ImageTag | None) -> list[DocumentView]:
    newest = must_parse(knowledge.newest_stable.name)
    override = tag.version if tag else None
    chip = chip_by_suffix(knowledge, tag.suffixes) if tag else None
    known = [Versions(document, override, newest, chip=chip) for document in documents]
    running = {version for versions in known for _, version in versions.images}
    by_folder: dict[str, set[Version]] = {}
    for versions in known:
        folder = by_folder.setdefault(folder_of(versions.document.path), set())
        folder |= {version for _, version in versions.images}
    for index, versions in enumerate(known):
        nearby = by_folder[folder_of(versions.document.path)] or running
        if not versions.images and len(nearby) == 1:
            found = next(iter(nearby))
            known[index] = Versions(versions.document, override, found, is_assumed=False, chip=chip)
    names = used_names(documents)
    return [
        view_document(document, knowledge, versions, names)
        for document, versions in zip(documents, known, strict=True)
    ]


def _check_document(view: DocumentView) -> Iterator[Finding]:
    for hit, version in _run_document(view):
        yield from _finding(hit, version, view.knowledge)


def _run_document(view: DocumentView) -> Iterator[tuple[Hit, Version]]:
    """What the checks of one document report, with the version each is judged by.

    A launch may be at fault for what a file says that it sources; that file does not know which image runs.
    """
    for launch in view.launches:
        checks = on_flags.checks
        if launch.launch.kind == "serve":
            checks = checks + on_server.checks
        for _, check in checks:
            for hit in check(launch):
                is_own = hit.place.path == view.document.path
                yield hit, view.versions.at(hit.place.start) if is_own else launch.version
    for _, check_document in on_document.checks:
        for hit in check_document(view):
            is_own = hit.place.path == view.document.path
            yield hit, view.versions.at(hit.place.start if is_own else 0)


def _run_files(files: FileSet) -> Iterator[Hit]:
    for _, check in on_files.checks:
        yield from check(files)


def _findings(hits: Iterable[Hit], knowledge: Knowledge, views: Sequence[DocumentView]) -> Iterator[Finding]:
    """Findings of hits whose rule holds for the version at their place."""
    versions = {view.document.path: view.versions for view in views}
    for hit in hits:
        yield from _finding(hit, versions[hit.place.path].at(hit.place.start), knowledge)


def _finding(hit: Hit, version: Version, knowledge: Knowledge) -> Iterator[Finding]:
    rule = knowledge.rules[hit.rule_id]
    if is_in_range(version, rule.since, rule.until):
        yield Finding(
            rule_id=rule.name,
            severity=rule.severity,
            consequence=rule.consequence,
            place=hit.place,
            message=hit.message,
            fix=Fix(hit.fix or rule.fix, hit.edits),
            source=rule.source,
            since=rule.since,
            until=rule.until,
            version=str(version),
        )


def _merge(first: list[Finding], second: list[Finding]) -> list[Finding]:
    """Findings for two versions of one file: of the same family at one place the gravest."""
    merged = list(first)
    for finding in second:
        same = [
            other for other in merged if other.place == finding.place and _family(other) == _family(finding)
        ]
        if any(RANKS[other.severity] <= RANKS[finding.severity] for other in same):
            continue
        merged = [other for other in merged if other not in same]
        merged.append(finding)
    return merged


def _family(finding: Finding) -> str:
    return re.sub(r"\d+$", "", finding.rule_id)
