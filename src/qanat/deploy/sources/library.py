"""Files that other files name: `source env.sh`, `docker run --env-file`, `env_file:`, the ConfigMap of a pod."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from qanat.deploy.sources.values import Source, Value

MAX_FOLLOWED = 500
"""Files that are opened because others name them; a script can name many."""
_OWN_FOLDER = re.compile(r"dirname|BASH_SOURCE|\$\{?0\b|\$\{?PWD\b|\bpwd\b")
"""What stands for the folder of the script itself."""
_INSIDE = re.compile(
    r"(?:\)|\$\w+|\$\{\w+\})[\"']?((?:/[\w.-]+)+)[\"']?\s*(?:>\s*\S+\s*)?(?:&&|;)\s*pwd", re.ASCII
)
"""A way from that folder inside of `$(cd "$(dirname "$0")/.." && pwd)` or `$(cd "$HERE/.." && pwd)`."""
_TAIL = re.compile(r"(?:[)}\"'*]|\$\w+|\$\{[^}]*\})((?:/[\w.-]+)+)$", re.ASCII)
_PLAIN = re.compile(r"[\w./@%+-]+", re.ASCII)

Loader = Callable[[str, str], str | None]
"""Reads a file that another one names: takes that other file's path and the path to read; None if it may not."""


class Library:
    """The files that are checked together, and those that they name.

    Args:
        texts: content of the files that are checked, by path.
        load: reads further ones; None to know of no others.

    Attributes:
        followed: paths of the files that were read because others name them, in order; True for those that hold
            variables for a container and are no scripts.
        maps: ConfigMaps of manifests by name, put here by the reader of YAML once it looked for them.
    """

    def __init__(self, texts: Mapping[str, str], load: Loader | None = None) -> None:
        self.texts = dict(texts)
        self.load = load
        self.followed: dict[str, bool] = {}
        self.maps: dict[str, list[tuple[str, Value]]] | None = None
        self._paths = {posixpath.normpath(path): path for path in texts}
        self._sources: dict[str, Source | None] = {}
        self._contents: set[str] | None = None

    def find(self, origin: str, name: Value, is_environment: bool = False) -> Source | None:
        """The file that `name`, written in the file `origin`, stands for; None if it is not known here.

        Args:
            origin: path of the file that names it.
            name: as written; a leading `$(dirname "$0")` or the like is the folder of `origin`.
            is_environment: it holds variables for a container.
        """
        way = _way(name)
        if way is None:
            return None
        path = way if way.startswith("/") else posixpath.join(posixpath.dirname(origin), way)
        source = self._source(origin, posixpath.normpath(path))
        if source is not None:
            self.followed[source.path] = self.followed.get(source.path, False) or is_environment
        return source

    def text(self, path: str) -> str:
        """Content of a file that was found."""
        return next(source.text for source in self._sources.values() if source and source.path == path)

    def holds(self, text: str) -> bool:
        """Whether a checked script says just this."""
        if self._contents is None:
            self._contents = {
                one.strip() for path, one in self.texts.items() if path.endswith((".sh", ".bash"))
            }
        return text.strip() in self._contents

    def manifests(self) -> Iterator[Source]:
        """The checked files that may hold a ConfigMap."""
        for path, text in self.texts.items():
            if path.lower().endswith((".yaml", ".yml", ".json")) and "ConfigMap" in text:
                yield Source(path, text)

    def _source(self, origin: str, path: str) -> Source | None:
        if path in self._sources:
            return self._sources[path]
        named = self._paths.get(path)
        text = self.texts[named] if named is not None else None
        if text is None and self.load is not None and len(self._sources) < MAX_FOLLOWED:
            text = self.load(origin, path)
        self._sources[path] = None if text is None else Source(named or path, text)
        return self._sources[path]


def _way(name: Value) -> str | None:
    """The path that a word stands for, seen from the folder of its script; None if nobody can know."""
    text = name.text
    if not name.unknown:
        return text if text and _PLAIN.fullmatch(text) and not text.endswith("/") else None
    tail = _TAIL.search(text)
    if tail is None or not _OWN_FOLDER.search(text[: tail.start(1)]):
        return None
    inside = _INSIDE.search(text)
    return f"{inside.group(1) if inside else ''}{tail.group(1)}".lstrip("/")
