"""One line of a log: colours gone, and its prefix taken apart into process, level, time and place."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINE_CHARS = 32_768
"""Longer lines are cut: nothing that is looked for stands further behind, dumps of settings included."""

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]"
)
_CONTROL = dict.fromkeys((*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)))
"""All of them but tab and the ends of lines; a carriage return parts states of a progress bar."""
_LOST_ESCAPE = re.compile(r"\^\[\[[\d;]*m|^\[?(?:\d+;)*\d+m(?=\()|(?<=\))\[?(?:0;)?0m")
"""Colours of logs that were copied from a terminal or a web page, which took the escape character away."""
_OUTER = re.compile(
    r"""(?:
        (?P<date>\d{4}-\d\d-\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s*(?:\|\s?)?
        (?:std(?:out|err)\s[FP]\s)?
      | [\w.-]+\s+\|\s                          # docker compose
      | \[pod/[^\]\s]+\]\s                      # kubectl logs --prefix
    )""",
    re.VERBOSE,
)
_PROCESS = re.compile(
    r"\((?P<name>[A-Za-z_][\w.-]*(?:\s\w+)?)\s+(?:rank=(?P<rank>\d+)\s+)?pid=(?P<pid>\d+)(?:,\s*ip=(?P<ip>[\d.a-fA-F:]+))?\)\s?"
)
_RANK = re.compile(r"\[rank(?P<rank>\d+)\]:\s?")
_VLLM = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\s+"
    r"(?P<month>\d\d)-(?P<day>\d\d)\s(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d+)?\s+\[?(?P<place>[\w./<>-]+:\d+)\]\s?"
)
_BARE = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):\s+|\[(?P<marked>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\]:?\s+"
)
"""A level and nothing else: uvicorn's lines, and what CANN's tools print beside their logs."""
_TORCH = re.compile(
    r"\[(?P<letter>[WEIF])(?P<month>\d\d?)(?P<day>\d\d)\s(?P<clock>\d\d:\d\d:\d\d)[.\d]*\s(?P<place>[^\]\s]+)[^\]]*\]\s?"
)
_TORCH_NPU = re.compile(
    r"\[(?P<level>ERROR|WARNING|INFO|DEBUG)\]\s(?P<date>\d{4}-\d\d-\d\d)-(?P<clock>\d\d:\d\d:\d\d)\s"
    r"\(PID:\s?(?P<pid>\d+),\s?Device:\s?(?P<device>-?\d+),\s?RankID:\s?(?P<rank>-?\d+)\)\s?"
)
_PLOG = re.compile(
    r"\[(?P<level>ERROR|WARNING|INFO|DEBUG|EVENT|TRACE)\]\s(?P<module>[A-Z_]+)\((?P<pid>\d+),(?P<program>[^)]*)\):"
    r"(?P<date>\d{4}-\d\d-\d\d)[- ](?P<clock>\d\d:\d\d:\d\d)[.\d]*\s?"
)
_USUAL = re.compile(_PROCESS.pattern + _VLLM.pattern)
"""How nearly all lines of vLLM begin: one pattern for both parts is quicker."""
_GLOG = re.compile(
    r"(?P<letter>[WEIF])(?:\d{4})?(?P<month>\d\d)(?P<day>\d\d)\s(?P<clock>\d\d:\d\d:\d\d)\.\d+\s+(?P<pid>\d+)\s"
    r"(?=(?P<place>[\w./-]+:\d+)\])"
)
_LETTERS = {"W": "WARNING", "E": "ERROR", "I": "INFO", "F": "CRITICAL"}
_DIGITS = re.compile(r"(TP|rank|RANK)_?(\d+)")


class Line(NamedTuple):
    """A line.

    Attributes:
        text: without the prefix.
        number: in its file, from 1.
        process: as the log names it ("Worker_TP3", of CANN's logs "HCCL pid 131"); empty where it does not.
        pid: process id, empty where unknown.
        rank: where the prefix names one.
        level: ERROR, WARNING, ...; empty without.
        place: of the logging statement ("core.py:93").
        month, day, second: when it was written; month 0 where the line does not say. `second` counts from midnight.
        is_outer_time: the time is that of a container's log, perhaps in another time zone than the server's own.
        whole: the line with its prefix.
    """

    text: str
    number: int
    process: str
    pid: str
    rank: int | None
    level: str
    place: str
    month: int
    day: int
    second: int
    is_outer_time: bool
    whole: str

    @property
    def has_time(self) -> bool:
        """Whether the line says when it was written."""
        return self.month > 0


def clean(text: str) -> str:
    """A line without colours and control characters, cut at `MAX_LINE_CHARS`."""
    text = text[:MAX_LINE_CHARS]
    if not text.isprintable():
        text = _ESCAPE.sub("", text).translate(_CONTROL)
    if "m(" in text[:24] or "^[[" in text:
        text = _LOST_ESCAPE.sub("", text)
    return text.rstrip("\r\n")


def read_line(raw: str, number: int) -> Line:
    """Takes the prefix of a line apart; any text is a line."""
    whole = clean(raw)
    usual = _USUAL.match(whole)
    text = whole[usual.end() :] if usual else whole
    found = {name: value for name, value in usual.groupdict().items() if value is not None} if usual else {}
    is_outer_time = False
    for _ in range(0 if usual else 8):
        match = _next_part(text)
        if match is None:
            break
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        if "level" in found and not groups.keys().isdisjoint(("level", "marked")):
            break
        if match.re is _OUTER:
            is_outer_time = is_outer_time or "clock" in groups
            found = groups | found
        else:
            is_outer_time = is_outer_time and "clock" not in groups
            found = found | groups
        text = text[match.end() :]
    month, day, second = _time(found)
    process = found.get("name", "")
    if not process and "module" in found:
        process = f"{found['module']} pid {found['pid']}"
    level = found.get("level", "") or found.get("marked", "") or _LETTERS.get(found.get("letter", ""), "")
    return Line(
        text=text,
        number=number,
        process=process,
        pid=found.get("pid", ""),
        rank=_rank(found, process),
        level="ERROR" if level == "FATAL" else level,
        place=found.get("place", ""),
        month=month,
        day=day,
        second=second,
        is_outer_time=is_outer_time,
        whole=whole,
    )


def _next_part(text: str) -> re.Match[str] | None:
    for pattern in (_PROCESS, _VLLM, _PLOG, _TORCH_NPU, _TORCH, _GLOG, _RANK, _BARE, _OUTER):
        match = pattern.match(text)
        if match is not None:
            return match
    return None


def _time(found: dict[str, str]) -> tuple[int, int, int]:
    if "clock" not in found:
        return 0, 0, 0
    hour, minute, second = (int(part) for part in found["clock"].split(":"))
    if "month" in found:
        month, day = int(found["month"]), int(found["day"])
    else:
        month, day = (int(part) for part in found["date"].split("-")[1:])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return 0, 0, 0
    return month, day, hour * 3600 + minute * 60 + second


def _rank(found: dict[str, str], process: str) -> int | None:
    if found.get("rank", "").isdigit():
        return int(found["rank"])
    match = _DIGITS.search(process)
    return int(match.group(2)) if match else None
