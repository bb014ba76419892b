"""Runs the checks over documents and makes findings of what they report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from qanat.deploy.knowledge.load import Knowledge, load_knowledge
from qanat.deploy.knowledge.model import Severity
from qanat.deploy.knowledge.versions import Version, is_in_range, must_parse, parse_image
from qanat.deploy.lint import rules
from qanat.deploy.lint.files import DocumentView, FileSet, Versions, folder_of, view_document
from qanat.deploy.lint.finding import Finding, Fix
from qanat.deploy.lint.ignore import Ignores
from qanat.deploy.lint.registry import Hit, on_document, on_files, on_flags, on_server
from qanat.deploy.sources.launch import Document

RANKS = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
rules.load()


class ImageError(ValueError):
    """The image that was named has no version that can be read; the message says what is expected."""


def lint(documents: Sequence[Document], image: str | None = None) -> list[Finding]:
    """Checks documents together and returns what was found, in order of file and line.

    Args:
        documents: read files; rules across files look at all of them.
        image: image, tag or version of vllm-ascend that runs; None to go by what the files say, and by the
            newest stable release where they say nothing.

    Raises:
        ImageError: no version can be read from `image`.
    """
    knowledge = load_knowledge()
    tag = parse_image(image) if image is not None else None
    if image is not None and tag is None:
        raise ImageError(f"{image!r} names no version of vllm-ascend; expected something like v0.18.0rc1-a3")
    override = tag.version if tag else None
    views = _views(documents, knowledge, override)
    findings: list[Finding] = []
    for view in views:
        found = list(_check_document(view))
        claim = view.versions.contradicted_by
        if claim is not None:
            claimed = Versions(view.document, claim.version, claim.version)
            second = _check_document(view_document(view.document, knowledge, claimed))
            found = _merge(found, list(second))
        findings += found
    findings += _findings(_run_files(FileSet(views, knowledge)), knowledge, views)
    ignores = {document.path: Ignores(document) for document in documents}
    for ignore in ignores.values():
        findings += _findings(ignore.unknown(knowledge.rules), knowledge, views)
    unique = {(finding.rule_id, finding.place): finding for finding in reversed(findings)}
    kept = [finding for finding in unique.values() if not ignores[finding.place.path].covers(finding)]
    return sorted(kept, key=lambda finding: finding.sort_key)


def _views(
    documents: Sequence[Document], knowledge: Knowledge, override: Version | None
) -> list[DocumentView]:
    newest = must_parse(knowledge.newest_stable.name)
    known = [Versions(document, override, newest) for document in documents]
    running = {version for versions in known for _, version in versions.images}
    by_folder: dict[str, set[Version]] = {}
    for versions in known:
        folder = by_folder.setdefault(folder_of(versions.document.path), set())
        folder |= {version for _, version in versions.images}
    for index, versions in enumerate(known):
        nearby = by_folder[folder_of(versions.document.path)] or running
        if not versions.images and len(nearby) == 1:
            known[index] = Versions(versions.document, override, next(iter(nearby)), is_assumed=False)
    return [
        view_document(document, knowledge, versions)
        for document, versions in zip(documents, known, strict=True)
    ]


def _check_document(view: DocumentView) -> Iterator[Finding]:
    yield from _findings(_run_document(view), view.knowledge, [view])


def _run_document(view: DocumentView) -> Iterator[Hit]:
    for launch in view.launches:
        for _, check in on_flags.checks:
            yield from check(launch)
        if launch.launch.kind == "serve":
            for _, check in on_server.checks:
                yield from check(launch)
    for _, check_document in on_document.checks:
        yield from check_document(view)


def _run_files(files: FileSet) -> Iterator[Hit]:
    for _, check in on_files.checks:
        yield from check(files)


def _findings(hits: Iterable[Hit], knowledge: Knowledge, views: Sequence[DocumentView]) -> Iterator[Finding]:
    """Findings of hits whose rule holds for the version at their place."""
    versions = {view.document.path: view.versions for view in views}
    for hit in hits:
        rule = knowledge.rules[hit.rule_id]
        version = versions[hit.place.path].at(hit.place.start)
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
