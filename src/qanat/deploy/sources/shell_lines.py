"""Lines of scripts made readable for the shell's grammar, each character kept at its place.

Pages that were copied break in known ways: blanks behind a backslash, prompts, prose right behind a command, comments
inside a long command. Each is put right by overwriting characters, so that places stay what they were; what a shell
would have stumbled over is noted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy

from qanat.deploy.sources.launch import NoteKind

START = re.compile(
    r"""\s*(?:
      (?:export|declare|readonly|local|typeset)\s+(?:-\w+\s+)?[A-Za-z_]\w*(?:=|\s*$)
    | (?:source|\.)\s+[\w./~$-]+\s*$ | unset(?:\s+[A-Za-z_]\w*)+\s*$
    | (?:docker|podman|nerdctl)\s+(?:container\s+)?(?:run|exec|create|pull|stop|rm|ps|logs|start|cp|compose|load)\b
    | docker-compose\s | vllm\s+(?:serve|bench|chat|run-batch|collect-env)\b | qanat\s+\w+\s
    | (?:\S*/)?python(?:\d(?:\.\d+)?)?\s+(?:-|\S+\.py\b) | torchrun\s+- | ray\s+(?:start|stop|status)\b
    | (?:nohup|exec|setsid|env|stdbuf|timeout)\s+[\w./=-]+ | (?:numactl|taskset|nice)\s+- | sudo\s+[\w./-]+
    | (?:pkill|kill|killall)\s+[-\w] | echo\s.*[|>"'$] | sysctl\s+[-\w] | curl\s+(?:-|http|"|'|\$)
    | (?:lm_eval|lm-eval|ais_bench)\s*(?:-|\\|$) | cd\s+[\w./~$-]+\s*(?:&&.*)?$ | (?:bash|sh)\s+(?:-\w|\S+\.sh\b)
    | pip3?\s+(?:install|download|uninstall|config|list)\b | git\s+(?:clone|checkout|pull|submodule)\b
    | (?:apt|apt-get|yum|dnf)\s+(?:-|install|update) | (?:kubectl|helm)\s+\w+ | tail\s+- | mkdir\s+[-/\w.$]
    | cat\s+(?:[-/<>.~$]|\w+\.\w+)
    | (?:ifconfig|npu-smi|hccn_tool|lspci|ulimit|modprobe|systemctl|mount|chmod|ln|cp|mv|rm)\s+[-\w/]
    | (?:modelscope|huggingface-cli|hf|wget|tar|unzip)\s+[-\w] | set\s+[-+]\w | \./\S+
    | for\s+\w+\s+in\b.*[;$`*{\d] | for\s*\(\( | if\s+\[
    | (?:while|until)\s+(?:\[|:|!|true|read|\(\(|\S+\s+-) | case\s.*\sin\s*$ | function\s+\w+
    | [A-Za-z_]\w*\s*\(\)\s*\{ | [A-Za-z_]\w*\+?=(?![=\s]) | \#!\s*/
    )""",
    re.VERBOSE | re.ASCII,
)
"""How a line of a script begins, as against a line of text."""

PROMPT = re.compile(
    r"\s*(?:\([\w.-]+\)\s*)?(?:(?:\[[\w.-]+@[\w.-]+[^\]]*\]|[\w.-]+@[\w.-]+:[^\s$#]*)\s?[$#]|\$)\s+(?=\S)",
    re.ASCII,
)
OTHER_SCRIPT = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\u3000-\u303f“”‘’•…]")
"""Characters that no command holds outside quotes and comments: Chinese, Japanese and Korean, and their marks."""
LOST_FLAG = re.compile(r"\s*--?[A-Za-z](?![^()]*\))")
OPENING = re.compile(r"\s*(?:for|while|until|if|case|select)\b|.*(?:\{|\bthen|\bdo)\s*$")
CLOSING = re.compile(r"\s*(?:done|fi|esac|\})")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_TOKEN = re.compile(
    r"\\.|['\"#\s]|" + OTHER_SCRIPT.pattern + r"|[^\\'\"#\s\u2e80-\uffff“”‘’•…]+|.", re.DOTALL
)
_SPECIAL = re.compile(r"[\\'\"#(<]|" + OTHER_SCRIPT.pattern)
"""What a line must hold to be more than plain words."""

OnNote = Callable[[NoteKind, int, int, str], None]
"""Takes the kind of a note, offsets from and behind, and the message."""


class LineState:
    """Quotes, here-documents and continuations at the end of a line.

    Attributes:
        quote: the quote that is open, or "".
        is_continued: the line ends with a backslash.
        heredoc: word that ends the here-document that is open, or "".
        depth: loops and conditions that are open.
        parentheses: of an array that are open.
    """

    def __init__(self) -> None:
        self.quote = ""
        self.is_continued = False
        self.heredoc = ""
        self.depth = 0
        self.parentheses = 0

    @property
    def is_open(self) -> bool:
        """True if the next line belongs to the same command or block."""
        return self.is_inside or self.depth > 0

    @property
    def is_inside(self) -> bool:
        """True if the next line belongs to the same command."""
        return bool(self.quote or self.is_continued or self.heredoc or self.parentheses)

    def take(self, line: str) -> int:
        """Goes over a line; returns where text begins that is no command, or -1."""
        if self.heredoc:
            if line.strip() == self.heredoc:
                self.heredoc = ""
            return -1
        if not self.quote and not self.is_continued:
            if CLOSING.match(line):
                self.depth = max(0, self.depth - 1)
            elif OPENING.match(line) and not re.search(r";\s*(done|fi|esac|\})\s*(#.*)?$", line):
                self.depth += bool(
                    re.match(r"\s*(?:for|while|until|if|case|select)\b", line) or "{" in line[-3:]
                )
        body = line[:-1] if line.endswith("\\") else line
        if not self.quote and not self.parentheses and not _SPECIAL.search(body):
            self.is_continued = body is not line
            return -1
        prose, at, before = -1, 0, " "
        self.is_continued = False
        while at < len(line) and (match := _TOKEN.match(line, at)):
            token = match.group()
            if self.quote:
                if token == self.quote:
                    self.quote = ""
                elif self.quote == "'" and token.startswith("\\"):
                    self.quote = "" if token == "\\'" else self.quote
            elif token in ("'", '"'):
                self.quote = token
            elif token == "#" and before.isspace():
                return prose
            elif prose < 0 and OTHER_SCRIPT.match(token):
                prose = at
            elif self.parentheses or "=(" in token:
                self.parentheses = max(0, self.parentheses + token.count("(") - token.count(")"))
            before = token
            at = match.end()
        self.is_continued = not self.quote and bool(re.search(r"(?<!\\)(?:\\\\)*\\$", line))
        heredoc = HEREDOC.search(line) if not self.quote and "<<<" not in line else None
        if heredoc:
            self.heredoc = heredoc.group(2)
        return prose


def mend(lines: list[str], offset: int, note: OnNote, cuts_prose: bool) -> str:
    """The lines as a shell can read them, as many characters as before.

    Args:
        lines: without line breaks; each takes one more character in the file.
        offset: of the first line in the file.
        note: told of what was put right.
        cuts_prose: text in other scripts ends a command, as in pages that were copied.
    """
    state = LineState()
    mended: list[str] = []
    breaks: list[str] = []
    at = offset
    for index, written in enumerate(lines):
        if written.endswith("\\\r"):
            written = written[:-2] + " \\"
        line = written.replace("\r", " ").replace("\x00", " ").replace("\u00a0", " ").replace("\ufeff", " ")
        is_comment = line.lstrip().startswith("#")
        if state.is_continued and is_comment and _flag_follows(lines, index + 1):
            note(
                "lost-flags",
                at,
                at + len(line),
                "a comment inside a command ends it: the flags below are lost",
            )
            line = " " * len(line)
            breaks[-1] = " "
            mended[-1] = mended[-1].rstrip("\\") + " " * (len(mended[-1]) - len(mended[-1].rstrip("\\")))
            mended.append(line)
            breaks.append(" ")
            at += len(line) + 1
            continue
        if not state.is_inside and mended and LOST_FLAG.match(line) and _has_command(mended):
            start = at + len(line) - len(line.lstrip())
            note("lost-flags", start, at + len(line.rstrip()), "the line above does not end with a backslash")
            _join_above(mended, breaks)
        line = _blanks_behind_backslash(line, state, at, note)
        line = _cut(line, state, at, note, cuts_prose)
        mended.append(line)
        breaks.append("\n")
        at += len(line) + 1
    for index in range(len(mended) - 1, -1, -1):
        if mended[index].strip():
            if mended[index].endswith("\\"):  # nothing follows that it could join
                mended[index] = mended[index][:-1] + " "
            break
    return "".join(line + end for line, end in zip(mended, breaks, strict=True))[:-1] if mended else ""


def _flag_follows(lines: list[str], index: int) -> bool:
    while index < len(lines) and lines[index].lstrip().startswith("#"):
        index += 1
    return index < len(lines) and bool(LOST_FLAG.match(lines[index]))


def _has_command(mended: list[str]) -> bool:
    """Whether the nearest line above, at most one blank line away, is a command that flags could belong to."""
    near = [line for line in mended[-2:] if line.strip()]
    if not near or near[-1].lstrip().startswith("#"):
        return False
    return bool(re.match(r"[\w./$\"'-]", near[-1].strip())) and not re.search(
        r"(?:[;&|(\[{]|\b(?:do|then|else|in))\s*$", near[-1]
    )


def _join_above(mended: list[str], breaks: list[str]) -> None:
    for index in range(len(mended) - 1, -1, -1):
        breaks[index] = " "
        if mended[index].strip():
            return


def _blanks_behind_backslash(line: str, state: LineState, at: int, note: OnNote) -> str:
    match = re.search(r"(?<!\\)\\([ \t]+)$", line)
    if match is None or state.heredoc or (line.lstrip().startswith("#") and not state.quote):
        return line
    behind = copy(state)
    behind.take(line)
    if behind.quote:
        return line
    note(
        "broken-continuation",
        at + match.start(),
        at + match.end(),
        "blanks behind the backslash end the command",
    )
    return line[: match.start()] + match.group(1) + "\\"


def _cut(line: str, state: LineState, at: int, note: OnNote, cuts_prose: bool) -> str:
    before = copy(state)
    prose = state.take(line)
    if prose < 0 or not cuts_prose or _is_placeholder(line, prose):
        return line
    rest = line[prose:].rstrip()
    keeps = "\\" if rest.endswith("\\") else ""
    glued = re.search(r"(?<==)\d+([A-Za-z_]\w*)$", line[:prose], re.ASCII)
    start = glued.start(1) if glued else prose
    note("text-in-command", at + start, at + len(line.rstrip()), "text stands right behind the command")
    state.__dict__.update(before.__dict__)
    cut = line[:start] + " " * (len(line) - start - len(keeps)) + keeps
    state.take(cut)
    return cut


def _is_placeholder(line: str, at: int) -> bool:
    """Whether text stands where a value belongs: behind `=` or `/`, inside `<>`, or short behind a flag."""
    if line[at - 1 : at] in ("=", "/", "<", ":") and at:
        return True
    opening = line.rfind("<", 0, at)
    if opening >= 0 and ">" not in line[opening:at] and ">" in line[at:]:
        return True
    rest = line[at:].rstrip(" \\")
    return bool(re.search(r"--[\w-]+[ =]$", line[:at])) and len(rest) <= 12 and " " not in rest
