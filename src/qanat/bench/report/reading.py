"""Reads saved results: a file of one result, or of a result in each line as `--append-result` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qanat.core.errors import ConfigError

MAX_FILE_BYTES = 2**30


def read_results(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Title and content of every result in a file.

    Raises:
        ConfigError: it cannot be read, or holds no result.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than 1 GiB.", param="RESULT")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", param="RESULT") from None
    try:
        found = [json.loads(text)]
    except (ValueError, RecursionError):
        found = _lines(path, text)
    for one in found:
        if not isinstance(one, dict) or not any(key in one for key in ("duration", "runs", "pairs")):
            raise ConfigError(
                f"{path} is no result of qanat bench serve, compare or sweep, nor of vllm bench serve.",
                param="RESULT",
            )
    titles = [
        path.name if len(found) == 1 else f"{path.name}, line {number + 1}" for number in range(len(found))
    ]
    return list(zip(titles, found, strict=True))


def _lines(path: Path, text: str) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}, line {number}: no JSON: {error}", param="RESULT") from None
    if not found:
        raise ConfigError(f"{path} is empty.", param="RESULT")
    return found
