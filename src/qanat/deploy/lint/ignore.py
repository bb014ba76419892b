"""Comments that silence rules: `# qanat: ignore[CLI001]`, in Markdown `<!-- qanat: ignore[CLI001] -->`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from qanat.deploy.lint.finding import Finding
from qanat.deploy.lint.registry import Hit
from qanat.deploy.sources.launch import Document
from qanat.deploy.sources.values import Place, Source

_COMMENT = re.compile(r"(?:#|<!--)[ \t]*qanat:[ \t]*ignore(-file)?\[([^\]\n]*)\]", re.ASCII)
_RULE = re.compile(r"[\w-]+", re.ASCII)


class Ignores:
    """The rules that comments of a document silence, by line.

    A comment behind something covers its line. One on a line of its own covers the next line, and all of a command
    that begins there. `ignore-file` covers the whole file.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.lines: dict[int, set[str]] = {}
        self.everywhere: set[str] = set()
        self.mentioned: list[tuple[str, Place]] = []
        if "qanat:" not in document.text:
            return
        source = Source(document.path, document.text)
        for match in _COMMENT.finditer(document.text):
            names = {name.group() for name in _RULE.finditer(match.group(2))}
            place = source.place(match.start(), match.end())
            self.mentioned += [(name, place) for name in sorted(names)]
            if match.group(1):
                self.everywhere |= names
                continue
            before = document.text[source.line_start(place.line) : match.start()]
            first = place.line if before.strip() else place.line + 1
            for line in range(first, self._end(first) + 1):
                self.lines.setdefault(line, set()).update(names)

    def _end(self, line: int) -> int:
        """The last line of the command that begins on a line."""
        ends = [command.place.end_line for command in self.document.commands if command.place.line == line]
        ends += [launch.place.end_line for launch in self.document.launches if launch.place.line == line]
        return max([line, *ends])

    def covers(self, finding: Finding) -> bool:
        """Whether a comment silences a finding."""
        return finding.rule_id in self.everywhere | self.lines.get(finding.place.line, set())

    def unknown(self, known: Collection[str]) -> Iterator[Hit]:
        """Comments that name rules there are not."""
        for name, place in self.mentioned:
            if name not in known:
                yield Hit("LNT002", place, f"there is no rule {name}; nothing is ignored")
