"""`qanat bench report`: makes one HTML file of saved results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qanat.cli.bench_actions.reporting import write_report
from qanat.cli.command import Command
from qanat.cli.reading import read_action
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BenchReportFlags:
    """Report."""

    output: str | None = option(Kind.TEXT, None, "HTML file to write.", aliases=("-o",))


COMMAND = Command(
    name="bench report",
    summary="Make an HTML report of saved results.",
    description=(
        "Writes one HTML file with plots and tables of results of `qanat bench serve`, `compare` and `sweep`, or of\n"
        "`vllm bench serve`. Distributions and the timeline need --save-detailed. The file fetches nothing."
    ),
    examples=(
        "qanat bench report result.json -o report.html",
        "qanat bench report a.json b.json -o both.html",
    ),
    groups=(),
    own=BenchReportFlags,
    word="RESULT",
    word_help="JSON files of results; also of one result in each line.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """Makes the report.

    Args:
        arguments: the command line without `qanat bench report`.

    Raises:
        ConfigError: no file, or one that holds no result; the report cannot be written.
    """
    from qanat.bench.report.reading import read_results

    options, words = read_action(COMMAND, BenchReportFlags, arguments)
    if not words:
        raise ConfigError("name at least one file of a result.", param="RESULT")
    if options.output is None:
        raise ConfigError("--output FILE says where the report is written.", param="--output")
    results = [one for word in words for one in read_results(Path(word).expanduser())]
    write_report(options.output, results, "--output")
    return 0
