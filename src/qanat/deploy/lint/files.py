"""A document with the views of its launches, and the files that are checked together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from qanat.deploy.knowledge.load import Knowledge
from qanat.deploy.knowledge.versions import Version, parse_image, parse_version
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.launch import Document
from qanat.deploy.sources.values import Place

_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:\.?rc\d+)?(?:\.post\d+)?", re.ASCII)
_RUNS = re.compile(r"(?:镜像\w*\s*[:：]|(?<![\w/])vllm-ascend\s+|(?<!\w)[Ii]mage\s*:)\s*[`*(]*$")
_HISTORY = re.compile(r"首次|first|since|supported|结果|results?|支持", re.IGNORECASE)
_OR_LATER = re.compile(r"\s*[`*)]*\s*(?:或更高|或以上|及以上|及更高|以上|or (?:later|newer|higher|above)|\+)")


@dataclass(frozen=True)
class Claim:
    """A version of vllm-ascend that a text names.

    Attributes:
        version: the version.
        place: where.
        is_minimum: the text says "or later".
        is_running: the text says that it is the one in use, not one that is told about.
    """

    version: Version
    place: Place
    is_minimum: bool
    is_running: bool


def claims(document: Document) -> list[Claim]:
    """The versions that the text of a guide names, in order."""
    found = []
    for mention in document.mentions:
        match = _VERSION.search(mention.value.text) if mention.kind == "version" else None
        version = parse_version(match.group()) if match else None
        if version is not None:
            after = document.text[mention.place.end : mention.place.end + 20]
            is_minimum = _OR_LATER.match(after) is not None
            start = mention.place.start + mention.value.text.index(match.group()) if match else 0
            before = document.text[max(0, start - 40) : start]
            is_running = bool(_RUNS.search(before)) and not is_minimum and not _HISTORY.search(before)
            found.append(Claim(version, mention.place, is_minimum, is_running))
    return found


@dataclass
class Versions:
    """Which version runs at each place of a document.

    Attributes:
        document: the file.
        override: what the user said, for all of it.
        fallback: where nothing says which.
        is_assumed: the file names no version, `fallback` is used throughout.
    """

    document: Document
    override: Version | None
    fallback: Version
    is_assumed: bool = False
    images: list[tuple[int, Version]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for container in self.document.containers:
            tag = parse_image(container.image.text) if container.image else None
            if tag is not None:
                self.images.append((container.place.start, tag.version))
        told = [claim for claim in claims(self.document) if not claim.is_minimum]
        stated = [claim.version for claim in told if claim.is_running] or [claim.version for claim in told]
        if self.override is None and not self.images:
            self.is_assumed = not stated
            self.fallback = stated[0] if stated else self.fallback

    def at(self, offset: int) -> Version:
        """The version in force at an offset: of the last container before it, else of the first."""
        if self.override is not None:
            return self.override
        before = [version for start, version in self.images if start <= offset]
        if before:
            return before[-1]
        return self.images[0][1] if self.images else self.fallback

    @property
    def contradicted_by(self) -> Claim | None:
        """A version the text claims that no container of the file runs."""
        if self.override is not None or not self.images:
            return None
        running = {version.base for _, version in self.images}
        for claim in claims(self.document):
            if claim.is_running and claim.version.base not in running:
                return claim
        return None


@dataclass
class DocumentView:
    """A file with the views of its launches, for the versions in force."""

    document: Document
    knowledge: Knowledge
    versions: Versions
    launches: list[LaunchView]

    def prose(self) -> Iterator[tuple[Place, str]]:
        """The lines that are text."""
        for place in self.document.prose:
            yield place, self.document.text[place.start : place.end]

    def servers(self) -> list[LaunchView]:
        """The launches that serve."""
        return [view for view in self.launches if view.launch.kind == "serve"]

    def proxies(self) -> list[LaunchView]:
        """The launches of proxies."""
        return [view for view in self.launches if view.launch.kind == "proxy"]


@dataclass
class FileSet:
    """All files that are checked together."""

    documents: list[DocumentView]
    knowledge: Knowledge


def view_document(document: Document, knowledge: Knowledge, versions: Versions) -> DocumentView:
    """A document with its launches read for the versions in force at each."""
    launches = [
        LaunchView(launch, document, knowledge, versions.at(launch.place.start))
        for launch in document.launches
    ]
    return DocumentView(document, knowledge, versions, launches)
