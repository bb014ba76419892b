"""`qanat bench kernels`: times each op at the shapes of models, as a share of the machine's limit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qanat.bench.shapes import DEMO, model_config
from qanat.cli.bench_actions.common import limit_lines, progress
from qanat.cli.command import Command
from qanat.cli.reading import read_action, say
from qanat.cli.terminal import require_engine, tell
from qanat.config.env import read_environment, wanted_instruction_set
from qanat.config.machine import read_machine
from qanat.config.options import option
from qanat.config.values import Kind, read_text
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.bench.kernels import KernelReport, KernelResult, KernelsWish, Runner
    from qanat.kernels.native.limits import Limits

PROVIDERS = ("native", "reference")
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class KernelsFlags:
    """Kernels."""

    model: tuple[str, ...] = option(
        Kind.TEXTS,
        (DEMO, "Qwen3.5-0.8B"),
        "Models whose shapes are used: names of published ones, demo, config.json files, folders or hub ids. "
        "Default: demo Qwen3.5-0.8B.",
        aliases=("-m",),
    )
    rows: tuple[str, ...] = option(
        Kind.TEXTS,
        ("1", "16", "512"),
        "Rows of a step: up to 64 are as many requests that decode, more are one prompt's. Default: 1 16 512.",
    )
    weights: tuple[str, ...] = option(
        Kind.TEXTS, ("bf16",), "Types of the weights; float types are those of the values too. Default: bf16."
    )
    provider: tuple[str, ...] = option(
        Kind.TEXTS,
        PROVIDERS,
        "Implementations: native, reference. Default: both; native alone for several sets.",
    )
    isa: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Instruction sets of the native kernels, or all. Default: that of QANAT_ISA, or the best of this processor.",
    )
    filter: tuple[str, ...] = option(
        Kind.TEXTS, (), "Leave out what does not contain one of these texts: an op, or a part such as q_proj."
    )
    context_len: int = option(
        Kind.COUNT, 1024, "Tokens that a request that decodes looks back at.", minimum=1
    )
    working_set: int = option(
        Kind.BYTES,
        512 * 2**20,
        "Weights, caches and states lie in so many copies that they take as much together: more than a cache holds.",
        minimum=2**20,
    )
    case_time_s: float = option(Kind.NUMBER, 0.3, "Seconds for each case and implementation.", minimum=0.001)
    num_threads: int | None = option(
        Kind.COUNT, None, "Threads that compute. Default: the cores that this process may use.", minimum=1
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON.")


COMMAND = Command(
    name="bench kernels",
    summary="Time each op at the shapes of a model, as a share of the machine's limit.",
    description=(
        "Calls each op as a step of the model would, on weights, caches and states that lie in memory and not in a\n"
        "processor's cache, and prints the median time with its spread, bytes and multiply-adds per second, and the\n"
        "share of the limit: the least time that the machine's read rate or its multiply-add rate with this\n"
        "instruction set allows, both measured before and after in the same run.\n"
        "Ops whose operands have just been written have no such limit."
    ),
    examples=(
        "qanat bench kernels --model Qwen3.5-0.8B --filter linear --rows 1 16",
        "qanat bench kernels --model Qwen3.5-35B-A3B --filter moe --provider native --isa all",
        "qanat bench kernels --model ./config.json --weights bf16 fp32 --json",
    ),
    groups=(),
    own=KernelsFlags,
    word="",
    word_help="",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the measurements.

    Args:
        arguments: the command line without `qanat bench kernels`.

    Raises:
        ConfigError: a name that is not known, or nothing to measure.
    """
    options, words = read_action(COMMAND, KernelsFlags, arguments)
    if words:
        raise ConfigError(f"{words[0]} belongs to no flag; a model is named with --model {words[0]}.")
    require_engine(COMMAND.name)
    from qanat.bench.kernels import cases_of, run_kernels

    wish = read_wish(options)
    chosen = cases_of(wish)
    if not chosen:
        raise ConfigError(
            f"--filter {' '.join(options.filter)}: no op has that in its name.", param="--filter"
        )
    with progress(len(chosen), "ops") as tick:
        report = run_kernels(wish, chosen, tick)
    say(json.dumps(report.as_json(), indent=2) if options.json else "\n".join(lines(report)))
    return 0


def read_wish(options: KernelsFlags) -> KernelsWish:
    """What the flags ask for.

    Raises:
        ConfigError: a value that is not known.
    """
    from qanat.bench.kernels import KernelsWish
    from qanat.kernels.cases.case import VALUE_TYPES

    _check("--weights", options.weights, VALUE_TYPES)
    environment, cores = read_environment({}), read_machine().num_cores
    num_threads = options.num_threads or cores
    if num_threads > cores:
        tell(f"--num-threads {num_threads} -> {cores}: this process may use {cores} cores")
    return KernelsWish(
        models={name: model_config(name, environment) for name in options.model},
        rows=[_rows(text) for text in options.rows],
        kinds=options.weights,
        runners=_runners(options),
        filters=options.filter,
        context_len=options.context_len,
        working_set_bytes=options.working_set,
        case_time_s=options.case_time_s,
        num_threads=min(num_threads, cores),
    )


def _rows(text: str) -> int:
    value = read_text(Kind.COUNT, [text], "--rows")
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"--rows {text}: at least 1 is needed.", param="--rows")
    return value


def _runners(options: KernelsFlags) -> list[Runner]:
    from qanat.bench.kernels import NATIVE, REFERENCE, Runner
    from qanat.kernels.native.module import instruction_sets, is_built, why_not

    _check("--provider", options.provider, PROVIDERS)
    runners = []
    if NATIVE in options.provider:
        if is_built():
            sets = instruction_sets()
            wanted = tuple(sets) if ALL in options.isa else options.isa or (_default_set(sets),)
            _check("--isa", wanted, sets)
            runners = [Runner(NATIVE, name) for name in wanted]
        elif NATIVE in options.provider and REFERENCE in options.provider and not options.isa:
            tell(why_not())
        else:
            raise ConfigError(why_not(), param="--provider")
    if REFERENCE in options.provider and len(options.isa) == 0:
        runners.append(Runner(REFERENCE))
    return runners


def _default_set(known: Sequence[str]) -> str:
    from qanat.kernels.native.module import check_instruction_set
    from qanat.kernels.registry import REFERENCE

    wanted = wanted_instruction_set()
    if wanted in ("", REFERENCE):
        return known[-1]
    check_instruction_set(wanted)
    return wanted


def _check(flag: str, names: Sequence[str], known: Sequence[str] | dict[str, object]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"{flag} {name}: choose of {', '.join(known)}.", param=flag)


def lines(report: KernelReport) -> Iterator[str]:
    """The report for a person: a table for each model, then the limits."""
    by_model: dict[str, list[KernelResult]] = {}
    for result in report.results:
        by_model.setdefault(result.model, []).append(result)
    for name, results in by_model.items():
        yield name
        yield from _table([HEAD, *(_row(result, report.limits) for result in results)])
        yield ""
    yield from limit_lines(report.as_json())


HEAD = ("op", "part", "weights", "rows", "by", "time", "spread", "GB/s", "G MAC/s", "of limit")


def _row(result: KernelResult, limits: Limits | None) -> tuple[str, ...]:
    case, median = result.case, result.seconds.median
    least_s, binds = result.least_s(limits) if limits is not None else (0.0, "")
    return (
        case.op,
        case.part,
        case.kind,
        str(case.rows),
        result.runner.name,
        _time(median),
        f"{result.seconds.spread:.0%}",
        f"{case.read_bytes / median / 1e9:.2f}",
        f"{case.macs / median / 1e9:.1f}" if case.macs else "-",
        f"{least_s / median:.0%} {binds}" if binds else "-",
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
