"""What became of each question, one JSON line an answer, so that a run that was stopped goes on where it was.

The first line names the settings. A line is written by one call, so a run that is killed leaves whole lines, and at
most one torn one at the end, which the next run cuts off.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from qanat.core.errors import ConfigError
from qanat.evals.judging import Verdict

KIND, VERSION = "qanat-eval", 1
Draw = tuple[str, str, int]
"""Task, item and sample: the name of one answer."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One answer's line.

    Attributes:
        task, item_id, digest: of the item; the digest tells whether two runs asked the same.
        sample: which of several answers to the item, from 0.
        verdict: right, wrong, cut (not finished), or error (there is no answer).
        expected: the right answers.
        extraction: what was found in the answer.
        prompt: the conversation or the text that was asked.
        answer, thinking, tool_calls: what the server said.
        finish_reason, usage: as the server says them.
        note: why there is no answer, or why a program failed.
        open_layers: what a program could not be kept from.
        tokens, chances: first tokens with their likeliest alternatives (log-probabilities).
        scores: log-probability of each choice by its letter, where choices are judged by that.
        duration_s: from the first try to the answer.
    """

    task: str
    item_id: str
    digest: str
    verdict: Verdict
    expected: tuple[str, ...] = ()
    extraction: str | None = None
    prompt: Any = None
    answer: str = ""
    thinking: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    open_layers: tuple[str, ...] = ()
    sample: int = 0
    tokens: tuple[str, ...] = ()
    chances: tuple[dict[str, float], ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    duration_s: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """Name of the item in the run."""
        return self.task, self.item_id

    @property
    def draw(self) -> Draw:
        """Name of this answer in the run."""
        return self.task, self.item_id, self.sample

    @property
    def is_empty(self) -> bool:
        """There was an answer, and nothing in it but, perhaps, thinking."""
        return self.verdict != "error" and not self.answer.strip() and not self.tool_calls


class Record:
    """A record that is open for writing; use as a context manager.

    Args:
        path: of the file; it is made unless it is there.
        settings: of this run, as JSON values.

    Raises:
        ConfigError: the file cannot be written, is no record, is being written by another run, or was begun with
            other settings; what differs is named.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"--record {path} cannot be written: {error.strerror}.", param="--record"
            ) from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise ConfigError(f"--record {path}: another run is writing it.", param="--record") from None
        try:
            self._results = self._begin(json.loads(json.dumps(settings)))
        except BaseException:
            os.close(self._handle)
            raise

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    @property
    def results(self) -> dict[Draw, Result]:
        """What was there when the record was opened; questions without an answer are not among it."""
        return {key: one for key, one in self._results.items() if one.verdict != "error"}

    def add(self, result: Result) -> None:
        """Writes one line.

        Raises:
            ConfigError: the disk takes it no more.
        """
        self._write(asdict(result))

    def _begin(self, settings: dict[str, Any]) -> dict[Draw, Result]:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if not whole:
            if content.strip() and not content.startswith(b'{"record"'):
                raise not_a_record(self.path)
            os.ftruncate(self._handle, 0)
            self._write({"record": KIND, "version": VERSION, "settings": settings})
            return {}
        was, results = parse_record(self.path, content[:whole])
        changed = sorted(name for name in was.keys() | settings.keys() if was.get(name) != settings.get(name))
        if changed:
            told = "; ".join(
                f"{name} was {_short(was.get(name))}, is {_short(settings.get(name))}" for name in changed
            )
            raise ConfigError(
                f"--record {self.path} was begun with other settings: {told}. Give the old ones, or another file.",
                param="--record",
            )
        os.ftruncate(self._handle, whole)
        return results

    def _write(self, value: Any) -> None:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            written = os.write(self._handle, line)
        except OSError as error:
            raise ConfigError(
                f"--record {self.path} cannot be written: {error.strerror}.", param="--record"
            ) from None
        if written != len(line):
            raise ConfigError(f"--record {self.path} cannot be written: the disk is full.", param="--record")


def read_record(path: Path) -> tuple[dict[str, Any], dict[Draw, Result]]:
    """Settings and results of a record; of a question that was asked again, the last.

    Raises:
        ConfigError: it cannot be read, or is no record.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the record {path} cannot be read: {error.strerror}.") from None
    return parse_record(path, content[: content.rfind(b"\n") + 1])


def parse_record(path: Path, content: bytes) -> tuple[dict[str, Any], dict[Draw, Result]]:
    """As `read_record`, from the whole lines of a file."""
    lines = _lines(path, content)
    try:
        _, head = next(lines)
    except StopIteration:
        raise not_a_record(path) from None
    if not isinstance(head, dict) or head.get("record") != KIND or not isinstance(head.get("settings"), dict):
        raise not_a_record(path)
    if head.get("version") != VERSION:
        raise ConfigError(
            f"the record {path} has the version {head.get('version')}; this Qanat reads {VERSION}."
        )
    results = {}
    for number, value in lines:
        try:
            result = msgspec.convert(value, Result)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the record {path}, line {number}: {error}") from None
        results[result.draw] = result
    return head["settings"], results


def not_a_record(path: Path) -> ConfigError:
    """The error for a file that is something else."""
    return ConfigError(f"{path} is no record of `qanat eval`.", param="--record")


def _lines(path: Path, content: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):
            if number == 1:
                raise not_a_record(path) from None
            raise ConfigError(f"the record {path}, line {number}: no valid JSON.") from None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
