"""Guides: commands found between text, fenced or not, and names in the text."""

from __future__ import annotations

import re
from collections.abc import Callable

from qanat.deploy.sources.launch import Assignment, Mention, Note, NoteKind
from qanat.deploy.sources.programs import fragment
from qanat.deploy.sources.reader import Reader, Scope
from qanat.deploy.sources.shell import Variables
from qanat.deploy.sources.shell_lines import LOST_FLAG, OTHER_SCRIPT, PROMPT, START, LineState, mend
from qanat.deploy.sources.values import Span, Value, value_at

FENCE = re.compile(r"\s*(?:[-*+>]\s+)?(`{3,}|~{3,})\s*([\w+-]*)[^`]*$")
SHELL_NAMES = frozenset(("bash", "sh", "shell", "console", "zsh", "shell-session", "bat", "cmd"))
YAML_NAMES = frozenset(("yaml", "yml"))
YAML_START = re.compile(r"(?:services|apiVersion|kind):")
HEADING = re.compile(r"#{1,6}\s+\S|\d+(?:\.\d+)*[.、]?\s*[^\d\s.,;:)].{0,60}$|[一二三四五六七八九十]+、")
MAX_OPEN_LINES = 200
"""A quote or loop that stays open longer was never closed."""

FLAG_IN_TEXT = re.compile(r"(?<![A-Za-z0-9_/.\-–—=])(--?|[–—]+-?)[A-Za-z][A-Za-z0-9_-]+(?:\.[a-z_]+)*")
VARIABLE_IN_TEXT = re.compile(r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?![A-Za-z0-9_])")
VERSION_IN_TEXT = re.compile(
    r"(?<![\w.])v?0\.\d{1,2}\.\d{1,2}(?:\.?(?:rc|RC|post)\d+)?(?:-[a-z0-9]+)?(?![\d.])"
)
ASSIGNED_IN_TEXT = re.compile(r"\bexport\s+([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[!-~]+)", re.ASCII)
VALUE_IN_TEXT = re.compile(r"\s*[= ]\s*('[^'\n]*'|\"[^\"\n]*\"|\d+(?:\.\d+)?(?![\w.]))")


class Guide:
    """Reads a guide into a reader.

    Args:
        reader: takes the facts.
        on_yaml: called with each YAML block.
    """

    def __init__(self, reader: Reader, on_yaml: Callable[[Value], None]) -> None:
        self.reader = reader
        self.source = reader.source
        self.lines = self.source.text.split("\n")
        self.on_yaml = on_yaml
        self.is_fenced = any(FENCE.match(line) for line in self.lines)
        self.variables = Variables(block=reader.new_block())

    def read(self) -> None:
        """Goes through the guide from top to bottom."""
        at = 0
        while at < len(self.lines):
            fence = FENCE.match(self.lines[at])
            if fence:
                at = self._fenced(at, fence)
            elif self._starts_script(at):
                end = max(at + 1, self._end_of_script(at))
                self._script(at, self._mended(at, end, cuts_prose=True))
                at = end
            else:
                self._text(at)
                at += 1

    def _fenced(self, at: int, fence: re.Match[str]) -> int:
        mark, language = fence.group(1), fence.group(2).lower()
        end = at + 1
        closing = re.compile(rf"\s*{re.escape(mark[0])}{{{len(mark)},}}\s*$")
        while end < len(self.lines) and not closing.match(self.lines[end]):
            end += 1
        lines = self.lines[at + 1 : end]
        if not lines:
            return end + 1
        if language in YAML_NAMES or (not language and any(YAML_START.match(line.strip()) for line in lines)):
            self.on_yaml(self._code(at + 1, "\n".join(lines)))
        elif language in ("", *SHELL_NAMES) and any(self._is_start(line) for line in lines):
            self._script(at + 1, self._mended(at + 1, end, cuts_prose=False))
        elif language in SHELL_NAMES:  # flags to be added to a command, or what a command said
            for number, line in enumerate(lines, at + 1):
                if LOST_FLAG.match(line):
                    self._text(number)
        return end + 1

    @staticmethod
    def _is_start(line: str) -> bool:
        prompt = PROMPT.match(line)
        return bool(START.match(line[prompt.end() :] if prompt else line))

    def _starts_script(self, at: int) -> bool:
        line = self.lines[at]
        if self._is_start(line):
            behind = START.match(line)
            return behind is None or not OTHER_SCRIPT.match(line[behind.end() : behind.end() + 1] or " ")
        if line.startswith("#") and not self.is_fenced:
            return self._comment_goes_on(at)
        return False

    def _end_of_script(self, at: int) -> int:
        """Number of the first line that is text again; blank lines at the end belong to the text."""
        state = LineState()
        end = at
        opened = at
        while at < len(self.lines):
            line = self.lines[at]
            if not state.is_open:
                opened = at
                is_comment = (
                    line.lstrip().startswith("#") and not HEADING.match(line) or line.startswith("#!")
                )
                is_flag = end == at and re.match(r"\s*--?[A-Za-z][\w-]*", line) is not None
                in_script = self._is_start(line) or (self._comment_goes_on(at) if is_comment else False)
                if line.strip() and not in_script and not (is_flag and at > 0):
                    return end
            elif at - opened > MAX_OPEN_LINES or (state.is_inside and FENCE.match(line)):
                return opened + 1
            state.take(re.sub(r"\\[ \t\r]+$", "\\\\", line))
            at += 1
            if line.strip():
                end = at
        return end if not state.quote else min(end, opened + 1)

    def _comment_goes_on(self, at: int) -> bool:
        """Whether commands follow a comment, at most one blank line behind it."""
        blanks = 0
        for line in self.lines[at : at + 12]:
            blanks += not line.strip()
            if blanks > 1:
                return False
            if line.strip() and not line.lstrip().startswith("#"):
                return self._is_start(line)
        return False

    def _mended(self, at: int, end: int, cuts_prose: bool) -> Value:
        lines = _without_prompts(self.lines[at:end])
        offset = self.source.line_start(at + 1)

        def note(kind: NoteKind, start: int, stop: int, message: str) -> None:
            self.reader.notes.append(Note(kind, self.source.place(start, stop), message))
            if kind == "text-in-command":
                self._names(start, stop)

        return self._code(at, mend(lines, offset, note, cuts_prose))

    def _code(self, at: int, text: str) -> Value:
        start = self.source.line_start(at + 1)
        span = Span(0, len(text), start, start + len(text))
        return Value(text, self.source.place(start, start + len(text)), (), (span,), self.source)

    def _script(self, at: int, code: Value) -> None:
        """Runs a piece of script; a shell goes on in the next piece unless it launched something."""
        if self.lines[at].lstrip().startswith("#!"):
            self._new_shell()
        num_launches = len(self.reader.launches)
        self.reader.script(code, self.variables, Scope())
        if len(self.reader.launches) > num_launches:
            self._new_shell()

    def _new_shell(self) -> None:
        self.variables = Variables(block=self.reader.new_block())

    def _text(self, at: int) -> None:
        line = self.lines[at]
        stripped = line.strip()
        if not stripped:
            return
        if HEADING.match(stripped) and not stripped.endswith(("。", ".", "；", "，", ",", "：", ":")):
            self._new_shell()
            self.reader.section = stripped.lstrip("# ").rstrip("#")[:80]
        elif len(stripped) <= 20 and not re.search(r"[。：:，,;；.]$", stripped):
            self.reader.section = stripped
        start = self.source.line_start(at + 1)
        self._names(start, start + len(line))

    def _names(self, start: int, end: int) -> None:
        """Notes the flags, variables and versions in a stretch of text."""
        text = self.source.text[start:end]
        self.reader.prose.append(self.source.place(start, end))
        argv: list[Value] = []
        for match in FLAG_IN_TEXT.finditer(text):
            name = value_at(self.source, start + match.start(), start + match.end())
            self.reader.mentions.append(Mention("flag", name, name.place))
            argv.append(name)
            if given := VALUE_IN_TEXT.match(text, match.end()):
                argv.append(self._unquoted(start + given.start(1), start + given.end(1)))
        if argv:
            self.reader.launches.append(fragment(tuple(argv), self.reader.section))
        for match in ASSIGNED_IN_TEXT.finditer(text):
            value = self._unquoted(start + match.start(2), start + match.end(2))
            place = self.source.place(start + match.start(1), start + match.end(2))
            self.reader.assignments.append(Assignment(match.group(1), value, place, "prose", -1))
        for match in VARIABLE_IN_TEXT.finditer(text):
            name = value_at(self.source, start + match.start(), start + match.end())
            self.reader.mentions.append(Mention("variable", name, name.place))
        if re.search(r"vllm|镜像|版本|version|image", text, re.IGNORECASE):
            for match in VERSION_IN_TEXT.finditer(text):
                name = value_at(self.source, start + match.start(), start + match.end())
                self.reader.mentions.append(Mention("version", name, name.place))

    def _unquoted(self, start: int, end: int) -> Value:
        """A stretch of text as a value, without the quotes around it."""
        text = self.source.text[start:end]
        if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
            return value_at(self.source, start, end)
        inner = value_at(self.source, start + 1, end - 1)
        return Value(inner.text, self.source.place(start, end), (), inner.spans, self.source)


def _without_prompts(lines: list[str]) -> list[str]:
    """Lines with prompts overwritten by blanks; where there are prompts, other lines are what the commands said."""
    if not any(PROMPT.match(line) for line in lines):
        return lines
    result = []
    state = LineState()
    for line in lines:
        prompt = PROMPT.match(line)
        if prompt and not state.is_inside:
            line = " " * prompt.end() + line[prompt.end() :]
        elif state.is_inside and re.match(r"\s*> ", line):
            line = line.replace("> ", "  ", 1)
        elif not state.is_inside:
            line = " " * len(line)
        state.take(line)
        state.depth = 0
        result.append(line)
    return result
