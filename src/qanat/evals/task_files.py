"""Reads tasks from local files: .jsonl, .json (a list) and .csv, as they are or with .gz, or folders of them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.core.errors import ConfigError
from qanat.evals.formats import FORMATS, recognise
from qanat.evals.item import LETTERS, EvalItem

ENDINGS = (".jsonl", ".json", ".csv")
"""With .gz behind them too."""
MAX_FILE_BYTES = 2**30
"""Of a file once it is unpacked."""
SPLIT_WORD = re.compile(r"[-_.](dev|val|valid|validation|test|train)$")
"""Stands at the end of a file's name, and is no part of the task's."""


@dataclass(frozen=True)
class TaskFile:
    """A file that has been read.

    Attributes:
        path: where it is.
        digest: SHA-256 of its bytes.
        items: in the file's order.
    """

    path: Path
    digest: str
    items: tuple[EvalItem, ...]


def read_task_files(paths: Sequence[str], form: str = "auto", flag: str = "--tasks") -> list[TaskFile]:
    """All items of these files; a folder stands for every such file in it.

    Args:
        paths: files and folders.
        form: of the rows: a name in `FORMATS`, or auto.
        flag: for messages.

    Raises:
        ConfigError: a file cannot be read or is not of the form, or an item is there twice; names the place.
    """
    files = [read_task_file(path, form) for path in _files(paths, flag)]
    seen: dict[tuple[str, str], Path] = {}
    for file in files:
        for item in file.items:
            if item.key in seen:
                raise ConfigError(
                    f"{file.path}: the item {item.item_id} of {item.task} is there twice (also in {seen[item.key]}); "
                    "give each an id of its own.",
                    param=flag,
                )
            seen[item.key] = file.path
    return files


def read_task_file(path: Path, form: str = "auto") -> TaskFile:
    """One file. Raises ConfigError as `read_task_files`."""
    try:
        content = path.read_bytes()
        text = (_unpacked(content) if _is_packed(path) else content).decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}", param="--tasks") from None
    task = SPLIT_WORD.sub("", _bare(path).stem)
    items: list[EvalItem] = []
    make = None
    for number, (line, row) in enumerate(_rows(path, text)):
        try:
            make = make or FORMATS[recognise(row) if form == "auto" else form]
            items.append(make(row, task, number))
        except (ValueError, ConfigError) as error:
            raise ConfigError(f"{path}:{line}: {error}", param="--tasks") from None
    if not items:
        raise ConfigError(f"{path} holds no items.", param="--tasks")
    return TaskFile(path, hashlib.sha256(content).hexdigest(), tuple(items))


def _files(paths: Sequence[str], flag: str) -> Iterator[Path]:
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            found = sorted(one for one in path.iterdir() if _bare(one).suffix.lower() in ENDINGS)
            if not found:
                raise ConfigError(f"{flag} {text}: no {', '.join(ENDINGS)} file in this folder.", param=flag)
            yield from found
        elif _bare(path).suffix.lower() not in ENDINGS:
            raise ConfigError(f"{flag} {text}: the name ends with none of {', '.join(ENDINGS)}.", param=flag)
        elif not path.is_file():
            raise ConfigError(f"{flag} {text}: there is no such file.", param=flag)
        else:
            yield path


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _bare(path: Path) -> Path:
    """The name without .gz."""
    return path.with_suffix("") if _is_packed(path) else path


def _unpacked(content: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        whole = file.read(MAX_FILE_BYTES + 1)
    if len(whole) > MAX_FILE_BYTES:
        raise ValueError(f"it holds more than {MAX_FILE_BYTES >> 30} GiB")
    return whole


def _rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with the number of the line, or of the row in a list."""
    kind = _bare(path).suffix.lower()
    rows = _csv_rows(text, path) if kind == ".csv" else _json_rows(text, path, is_lines=kind == ".jsonl")
    for line, row in rows:
        if not isinstance(row, dict):
            raise ConfigError(f"{path}:{line}: a row is a JSON object.", param="--tasks")
        yield line, {str(name).strip().lower(): value for name, value in row.items()}


def _json_rows(text: str, path: Path, *, is_lines: bool) -> Iterator[tuple[int, Any]]:
    if not is_lines:
        value = _parsed(text, path, 1)
        yield from enumerate(value if isinstance(value, list) else [value], start=1)
        return
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            yield line, _parsed(content, path, line)


def _parsed(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:{line}: no valid JSON: {error}", param="--tasks") from None


def _csv_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows by name; without a head (MMLU) the columns are question, choices, answer."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num}: no valid CSV: {error}", param="--tasks") from None
    if not rows:
        return
    head = [cell.strip().lower() for cell in rows[0][1]]
    if "question" in head:
        names, rows = head, rows[1:]
    else:
        letters = [letter.lower() for letter in itertools.islice(LETTERS, max(len(head) - 2, 0))]
        names = ["question", *letters, "answer"]
    for line, row in rows:
        if len(row) != len(names):
            raise ConfigError(
                f"{path}:{line}: {len(row)} cells, where there are {len(names)} columns.", param="--tasks"
            )
        yield line, {name: cell for name, cell in zip(names, row, strict=True) if name}
