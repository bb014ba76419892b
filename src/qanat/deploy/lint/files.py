"""A document with the views of its launches, and the files that are checked together."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.versions import Version, parse_image, parse_version
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.launch import Container, Document
from qanat.deploy.sources.values import Place, Source

_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:\.?rc\d+)?(?:\.post\d+)?", re.ASCII)
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)
_RUNS = re.compile(r"(?:镜像\w*\s*[:：]|(?<![\w/])vllm-ascend\s+|(?<!\w)[Ii]mage\s*:)\s*[`*(]*$")
_HISTORY = re.compile(r"首次|first|since|supported|结果|results?|支持", re.IGNORECASE)
_COMMENTED_IMAGE = re.compile(r"^[ \t]*#.*?vllm-ascend:(v?\d[\w.-]*)", re.MULTILINE | re.ASCII)
_OR_LATER = re.compile(r"\s*[`*)]*\s*(?:或更高|或以上|及以上|及更高|以上|or (?:later|newer|higher|above)|\+)")
_FROM_ON = re.compile(rf"(?<![A-Za-z0-9.])(v\d+\.\d+\.\d+(?:rc\d+)?)(?={_OR_LATER.pattern})")


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


def oldest_claimed(document: Document) -> Version | None:
    """The oldest release from which a text says that it holds; None if it names none."""
    found = [claim.version for claim in claims(document) if claim.is_minimum]
    for place in document.prose:
        for match in _FROM_ON.finditer(document.text, place.start, place.end):
            version = parse_version(match.group(1))
            found += [version] if version is not None else []
    return min(found, default=None)


def _images_in_comments(document: Document) -> Iterator[Version]:
    """Versions of images that comments name, as scripts do that run inside of one."""
    for match in _COMMENTED_IMAGE.finditer(document.text):
        tag = parse_image(match.group(1))
        if tag is not None:
            yield tag.version


@dataclass
class Versions:
    """Which version runs at each place of a document.

    Attributes:
        document: the file.
        override: what the user said, for all of it.
        fallback: where nothing says which.
        is_assumed: nothing names a version, `fallback` is a guess; pass False if it is known from elsewhere.
        images: the versions of its containers, with where these stand.
        chip: what the user said it is for.
    """

    document: Document
    override: Version | None
    fallback: Version
    is_assumed: bool = True
    images: list[tuple[int, Version]] = field(default_factory=list)
    chip: Chip | None = None

    def __post_init__(self) -> None:
        self.is_assumed = self.is_assumed and self.override is None
        for container in self.document.containers:
            tag = parse_image(container.image.text) if container.image else None
            if tag is not None:
                self.images.append((container.place.start, tag.version))
        self.is_assumed = self.is_assumed and not self.images
        told = [claim for claim in claims(self.document) if not claim.is_minimum]
        stated = [claim.version for claim in told if claim.is_running]
        stated = stated or list(_images_in_comments(self.document))
        if self.is_assumed:
            stated = stated or [claim.version for claim in told]
        if self.override is None and not self.images:
            self.is_assumed = self.is_assumed and not stated
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
    """A file with the views of its launches, for the versions in force.

    Attributes:
        document: the file.
        knowledge: what is known.
        versions: which version runs where.
        launches: the views, in order.
        used_names: variables that some of the files checked together fill in (`$NAME`, `${NAME}`).
    """

    document: Document
    knowledge: Knowledge
    versions: Versions
    launches: list[LaunchView]
    used_names: frozenset[str] = frozenset()

    def place(self, start: int, end: int) -> Place:
        """The place of a stretch of the file's text."""
        return self.source.place(start, end)

    @cached_property
    def source(self) -> Source:
        """The file's text with its lines."""
        return Source(self.document.path, self.document.text)

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
    """All files that are checked together.

    What belongs together is looked for nearby first: in the same file, then in the same folder, then everywhere.
    """

    documents: list[DocumentView]
    knowledge: Knowledge

    @cached_property
    def servers(self) -> list[LaunchView]:
        """Every launch that serves, in order."""
        return [view for document in self.documents for view in document.servers()]

    def circles(self, members: Sequence[LaunchView]) -> list[list[LaunchView]]:
        """Launches that may belong together: those of one file, else of one folder, else of the nearest one above."""
        circles = []
        groups = _grouped(members, lambda view: view.document.path)
        alone = [group[0] for group in groups if len(group) == 1]
        circles += [group for group in groups if len(group) > 1]
        depth = max((view.document.path.count("/") for view in alone), default=0)
        while alone and depth >= 0:
            groups = _grouped(alone, functools.partial(_ancestor, depth))
            circles += [group for group in groups if len(group) > 1]
            alone = [group[0] for group in groups if len(group) == 1]
            depth -= 1
        return [*circles, *([one] for one in alone)]

    def near(self, document: Document, candidates: Sequence[LaunchView]) -> list[LaunchView]:
        """The candidates in the same file, else those whose folder has most in common, files of the same kind first."""
        own = [view for view in candidates if view.document.path == document.path]
        if own:
            return own

        def nearness(view: LaunchView) -> tuple[int, bool]:
            pairs = zip(_folders(view.document.path), _folders(document.path), strict=False)
            common = 0
            for one, other in pairs:
                if one != other:
                    break
                common += 1
            return common, view.document.kind == document.kind

        best = max(map(nearness, candidates), default=None)
        return [view for view in candidates if nearness(view) == best]

    def started_scripts(self) -> Iterator[tuple[Container, LaunchView]]:
        """Containers with the servers of the checked scripts that they run, found by their path in the container."""
        scripts = [view for view in self.documents if view.document.kind == "shell" and view.servers()]
        for document in self.documents:
            for container in document.document.containers:
                for word in container.command if scripts else ():
                    for view in _script(container, word.text, document.document.path, scripts):
                        yield from ((container, server) for server in view.servers())


def _script(
    container: Container, path: str, origin: str, scripts: Sequence[DocumentView]
) -> list[DocumentView]:
    """The script that stands at a path of a container, in a folder of the host; empty if it is none of these."""
    if not path.startswith("/") or not path.endswith((".sh", ".bash")):
        return []
    targets = [mount.text.split(":")[1].rstrip("/") for mount in container.mounts if ":" in mount.text]
    inside = [path.removeprefix(f"{target}/") for target in targets if path.startswith(f"{target}/")]
    if not inside:
        return []
    rest = min(inside, key=len)
    fitting = [view for view in scripts if f"/{view.document.path}".endswith(f"/{rest}")]
    near = [view for view in fitting if _folders(view.document.path)[:1] == _folders(origin)[:1]]
    chosen = near or fitting
    return chosen if len(chosen) == 1 else []


def _ancestor(depth: int, view: LaunchView) -> str:
    return "/".join(_folders(view.document.path)[:depth])


def _folders(path: str) -> list[str]:
    return path.split("/")[:-1]


def folder_of(path: str) -> str:
    """The folder part of a path; "" without one."""
    return path.rpartition("/")[0]


def _grouped(views: Sequence[LaunchView], key: Callable[[LaunchView], str]) -> list[list[LaunchView]]:
    found: dict[str, list[LaunchView]] = {}
    for view in views:
        found.setdefault(key(view), []).append(view)
    return list(found.values())


def used_names(documents: Sequence[Document]) -> frozenset[str]:
    """The variables that files fill in by their names."""
    return frozenset(match.group(1) for document in documents for match in _USED.finditer(document.text))


def view_document(
    document: Document, knowledge: Knowledge, versions: Versions, names: frozenset[str] | None = None
) -> DocumentView:
    """A document with its launches read for the versions in force at each.

    Args:
        document: the file.
        knowledge: what is known.
        versions: which version runs where.
        names: see `used_names`; None for those of this file.
    """
    launches = [
        LaunchView(launch, document, knowledge, versions.at(launch.place.start), versions.chip)
        for launch in document.launches
    ]
    names = used_names([document]) if names is None else names
    return DocumentView(document, knowledge, versions, launches, names)
