"""What `--report` needs: settings for the page, the details of a run, and the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.bench.online.run import ServeResult

NOT_SHOWN = ("header", "json", "report", "output_json", "disable_tqdm")
"""Flags that say nothing of a run, or may hold a key."""


def settings_of(options: Any) -> dict[str, Any]:
    """The flags that differ from their defaults, by name, without those that may hold a key."""
    return {
        field.name: value
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default and field.name not in NOT_SHOWN
    }


def check_report(path: str | None) -> None:
    """Refuses before the run what could not be written after it.

    Raises:
        ConfigError: the file's folder is not there.
    """
    if path is not None and not Path(path).expanduser().absolute().parent.is_dir():
        raise ConfigError(f"--report {path}: there is no such folder.", param="--report")


def with_details(found: ServeResult) -> dict[str, Any]:
    """A result with the times of every request, whether or not they are saved."""
    from qanat.bench.online.figures import details

    return {
        **found.result,
        **details(found.outcome, found.result["qanat"]["latency_from"]),
        "generated_texts": None,
    }


def write_report(path: str, results: Sequence[tuple[str, Mapping[str, Any]]], flag: str = "--report") -> None:
    """Makes the page and writes it.

    Raises:
        ConfigError: a result is not what it seems, or the file cannot be written; names the flag.
    """
    from qanat.bench.report.page import page_of
    from qanat.cli.terminal import tell

    try:
        page = page_of(results)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        names = ", ".join(title for title, _ in results)
        raise ConfigError(
            f"no report can be made of {names}: what it holds is not as a result has it ({error!r})"
        ) from None
    try:
        Path(path).expanduser().write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be written: {error}", param=flag) from None
    tell(f"report written to {path}")
