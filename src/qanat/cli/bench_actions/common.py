"""What the offline benchmarks have in common on the command line."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.cli.terminal import decision_lines, echo, tell
from qanat.config.engine_config import (
    CacheOptions,
    ExecutionOptions,
    ModelOptions,
    SchedulerOptions,
)
from qanat.config.options import option
from qanat.config.parallel_options import ParallelOptions
from qanat.config.values import Kind
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

ENGINE_GROUPS = (ModelOptions, CacheOptions, SchedulerOptions, ParallelOptions, ExecutionOptions)
"""Groups of engine flags that a benchmark without a server takes."""

MODEL_HELP = (
    "Name of a published model (its shape, with random weights), config.json, folder or hub id; the same as --model. "
    "Default: the demo model."
)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output."""

    output_json: str | None = option(Kind.TEXT, None, "File to write the result to, as JSON.")
    json: bool = option(Kind.SWITCH, False, "Write the result as JSON to standard output.")
    limits: bool = option(
        Kind.SWITCH, True, "Measure the machine's limits in the same run and show the result beside them."
    )
    temperature: float = option(
        Kind.NUMBER, 1.0, "Temperature of sampling; 0 takes the most likely token.", minimum=0
    )
    disable_detokenize: bool = option(Kind.SWITCH, False, "Make no text of the tokens.")
    profile: bool = option(
        Kind.SWITCH, False, "Record a profile; --profiler-config says where. Times are longer then."
    )
    use_beam_search: bool = option(Kind.SWITCH, False, "Refused: Qanat has no beam search.")


def check_output(options: OutputOptions) -> None:
    """Refuses what cannot work before a model is loaded.

    Raises:
        ConfigError: the file's folder does not exist, or beam search is asked for.
    """
    if options.use_beam_search:
        raise ConfigError(
            "--use-beam-search: Qanat has no beam search; leave it out.", param="--use-beam-search"
        )
    if (
        options.output_json is not None
        and not Path(options.output_json).expanduser().absolute().parent.is_dir()
    ):
        raise ConfigError(
            f"--output-json {options.output_json}: there is no such folder.", param="--output-json"
        )


def tell_decisions(decisions: Sequence[Decision]) -> None:
    """One line for each to standard error."""
    for line in decision_lines(decisions):
        tell(line)


def write_result(options: OutputOptions, result: Mapping[str, Any], lines: Iterator[str]) -> None:
    """The result as text or JSON, and into the file that was asked for.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(result, indent=2)
    if options.output_json is not None:
        try:
            Path(options.output_json).expanduser().write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"--output-json {options.output_json} cannot be written: {error}", param="--output-json"
            ) from None
    echo(text if options.json else "\n".join(lines))


def limit_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The machine's limits, where they were measured."""
    limits = result.get("limits")
    if limits is None:
        return
    read = limits["read_bytes_per_s"] / 1e9
    yield f"Machine: reads {read:.1f} GB/s (spread {limits['read_spread']:.0%}), {limits['num_threads']} threads"
    for name, rate in limits["macs_per_s"].items():
        if not name.startswith("scalar"):
            yield f"         {name}: {rate / 1e9:,.0f} G multiply-adds/s"


@contextlib.contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[], None]]:
    """A function to call after each of so many pieces; a bar where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
