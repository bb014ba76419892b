"""What guides say in words and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.knowledge.versions import is_in_range
from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.registry import Hit, on_document
from qanat.deploy.sizing.capture import hybrid_block_size
from qanat.deploy.sources.launch import NoteKind
from qanat.deploy.sources.values import Place

_CANN = re.compile(r"\bCANN[ :：]*(\d+\.\d+(?:\.\w+)?)(?![\w+]|\.\w)(?!\s*(?:\+|or|及|或))", re.ASCII)
DRIVER = re.compile(r"\bHDK[ :：]*(\d+\.\d+(?:\.\d+)?)", re.ASCII)
_LEVEL_2 = re.compile(r"(?:建议|推荐|[Rr]ecommend\w*)[^。.\n]{0,24}?(?:Level ?2|TASK_QUEUE_ENABLE ?= ?2)")
_LOWER_SHARE = re.compile(r"(?:降低|减少|减小|[Ll]ower|[Rr]educe|[Dd]ecrease)[^。\n]*gpu-memory-utilization")
_AT_START = re.compile(r"启动时|profile运行|性能分析运行|at start|during start|profile run", re.IGNORECASE)
_PUSHES = re.compile(r"p2p[^。.\n]{0,20}(?:推送|push)|(?:推送|push)[^。.\n]{0,20}p2p", re.IGNORECASE)
_WRITABLE = re.compile(r"ascend_local_comm_res_path[^。.\n]{0,24}(?:可写|writable|writeable)")
_CHECK = re.compile(r"检查|check|verify", re.IGNORECASE)
_LONG_FLAG = re.compile(r"--[a-z][a-z0-9-]+", re.ASCII)
_MISSPELT = re.compile(r"(?<![\w.])v?\d+\.\d+\.\d+\.rc\d+|Ascend ?95DT|\bTOPT\b|\bPrefech\b", re.ASCII)
MAX_HINT_DISTANCE = 3
"""Lines between a command and the hint about it."""
_WORTH = re.compile(r"vllm|docker|export|npu", re.IGNORECASE)
"""What a part of a guide must mention to be missed when it cannot be read; the rest is output and other languages."""
MIN_DRIVER = (25, 5, 1)
STREAMS_SINCE = "0.18.0rc1"
NOTE_RULES: dict[NoteKind, str] = {
    "unreadable": "LNT001",
    "binary": "LNT003",
    "windows-lines": "CLI029",
    "broken-continuation": "CLI024",
    "lost-flags": "CLI024",
    "text-in-command": "CLI025",
}


@on_document("LNT001", "LNT003", "CLI024", "CLI025", "CLI029")
def notes(view: DocumentView) -> Iterator[Hit]:
    """Damage that reading found."""
    for note in view.document.notes:
        text = view.document.text[note.place.start : note.place.end]
        is_output = note.kind == "unreadable" and view.document.kind == "guide" and not _WORTH.search(text)
        if is_output:
            continue
        edits: tuple[Edit, ...] = ()
        if note.kind == "windows-lines":
            whole = view.document.text
            edits = (Edit(view.place(0, len(whole)), whole.replace("\r\n", "\n")),)
        yield Hit(NOTE_RULES[note.kind], note.place, note.message, edits=edits)


@on_document("HOST007", "HOST011")
def versions(view: DocumentView) -> Iterator[Hit]:
    """Versions in the text against those of the image."""
    claim = view.versions.contradicted_by
    if claim is not None:
        running = ", ".join(sorted({str(version) for _, version in view.versions.images}))
        yield Hit("HOST011", claim.place, f"the text says {claim.version}, the container runs {running}")
    if view.versions.is_assumed or not (view.document.containers or view.servers()):
        return
    for place, text in view.prose():
        version = view.versions.at(place.start)
        release = view.knowledge.release(version)
        for match in _CANN.finditer(text):
            cann = release.cann if release else None
            if cann is not None and not cann.lower().startswith(match.group(1).lower()):
                message = f"the text says CANN {match.group(1)}, the image {version} has {cann}"
                yield Hit("HOST007", place_inside(view, place, match), message)
        for match in DRIVER.finditer(text):
            driver = tuple(int(part) for part in match.group(1).split("."))
            if driver < MIN_DRIVER and is_in_range(version, STREAMS_SINCE, None):
                message = f"driver {match.group(1)} limits graph streams; {version} wants 25.5.1"
                yield Hit("HOST007", place_inside(view, place, match), message)


def place_inside(view: DocumentView, place: Place, match: re.Match[str]) -> Place:
    """Where a match in a line of text stands."""
    return view.place(place.start + match.start(), place.start + match.end())


@on_document("TXT002", "TXT003", "TXT004")
def advice(view: DocumentView) -> Iterator[Hit]:
    """Advice that does harm."""
    text = view.document.text
    for place, line in view.prose():
        before = text[max(0, place.start - 500) : place.start]
        match = _LEVEL_2.search(line)
        if match is not None and "task_queue" in (before + line).lower():
            yield Hit("TXT002", place_inside(view, place, match), "TASK_QUEUE_ENABLE=2 is recommended")
        match = _LOWER_SHARE.search(line)
        if match is not None and _AT_START.search(before) and "OOM" in before:
            message = "a lower share makes a start without room for the cache worse"
            yield Hit("TXT003", place_inside(view, place, match), message)
        for pattern, message in (
            (_PUSHES, "the point-to-point connector pulls the cache"),
            (_WRITABLE, "the folder is only read"),
        ):
            match = pattern.search(line)
            if match is not None:
                yield Hit("TXT004", place_inside(view, place, match), message)


@on_document("TXT005")
def hints(view: DocumentView) -> Iterator[Hit]:
    """Hints right behind a server that tell the reader to check a flag which it is not given."""
    prose = sorted(view.document.prose, key=lambda place: place.start)
    for server in view.servers():
        behind = next((place for place in prose if place.start >= server.launch.place.end), None)
        if behind is None or behind.line - server.launch.place.end_line > MAX_HINT_DISTANCE:
            continue
        line = view.document.text[behind.start : behind.end]
        if not _CHECK.search(line):
            continue
        for match in _LONG_FLAG.finditer(line):
            if match.group() in view.knowledge.serve_flags.entries and server.get(match.group()) is None:
                message = f"the hint speaks of {match.group()}, which the command before it is not given"
                yield Hit("TXT005", place_inside(view, behind, match), message)


@on_document("TXT006")
def spelling(view: DocumentView) -> Iterator[Hit]:
    """Versions and chips spelt as no tag and no product is."""
    for place, line in view.prose():
        for match in _MISSPELT.finditer(line):
            right = match.group().replace(".rc", "rc").replace("95DT", "950DT")
            right = right.replace("TOPT", "TPOT").replace("Prefech", "Prefetch")
            yield Hit(
                "TXT006", place_inside(view, place, match), f"{match.group()} is written {right}", right
            )


@on_document("TXT001")
def tables(view: DocumentView) -> Iterator[Hit]:
    """Recommended settings in tables, against the block of a hybrid model."""
    model = next((launch.model for launch in view.servers() if launch.model), None)
    if model is None or not model.is_hybrid:
        return
    header: list[str] = []
    for place, line in view.prose():
        cells = [cell.strip().strip("*`") for cell in re.split(r"\t|\|", line.strip().strip("|"))]
        if len(cells) < 4:
            header = []
        elif len(cells) != len(header):
            header = cells
        else:
            row = dict(zip(header, cells, strict=True))
            message = _row_fault(row, model)
            if message is not None:
                yield Hit("TXT001", place, message)


def _row_fault(row: dict[str, str], model: ModelFacts) -> str | None:
    tp = _number(_cell(row, r"^TP$|张量并行|[Tt]ensor"))
    tokens = _number(_cell(row, r"批处理.*[Tt]oken|[Bb]atched.?[Tt]okens|max-num-batched-tokens"))
    cache = _cell(row, r"前缀缓存|[Pp]refix.?[Cc]ach")
    if (
        tp is None
        or tokens is None
        or not cache
        or re.search(r"关|禁|off|no\b|disabled", cache, re.IGNORECASE)
    ):
        return None
    if model.num_linear_key_heads % tp:
        return None
    size = hybrid_block_size(
        model.num_kv_heads, model.head_dim, model.num_linear_value_heads, model.linear_head_dim, tp
    )
    if tokens >= size:
        return None
    return f"steps of {tokens} tokens at tensor parallel size {tp}; a block of {model.name} has {size}"


def _cell(row: dict[str, str], pattern: str) -> str:
    return next((cell for title, cell in row.items() if re.search(pattern, title)), "")


def _number(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match.group()) if match else None
