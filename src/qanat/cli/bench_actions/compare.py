"""`qanat bench compare`: two servers, or two settings of one, in turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.cli.bench_actions.reporting import settings_of, with_details, write_report
from qanat.cli.bench_actions.serve import FAILED, checked, exit_code, measure
from qanat.cli.bench_actions.serve_flags import BenchServeFlags
from qanat.cli.command import Command
from qanat.cli.reading import read_values, say
from qanat.cli.terminal import tell
from qanat.config.flag_names import flag_of
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.bench.online.wish import ServeWish

MIN_PAIRS = 2
SAVING = (
    "append_result",
    "save_result",
    "save_detailed",
    "result_dir",
    "result_filename",
    "metadata",
    "label",
)


@dataclass(frozen=True, kw_only=True)
class CompareFlags:
    """Comparison."""

    a: tuple[str, ...] = option(
        Kind.TEXTS, (), 'Flags of A alone, each as NAME=VALUE, such as extra-body={"top_k":1}.'
    )
    b: tuple[str, ...] = option(Kind.TEXTS, (), "Flags of B alone.")
    pairs: int = option(Kind.COUNT, 6, "Runs of each.", minimum=MIN_PAIRS)
    output_json: str | None = option(Kind.TEXT, None, "File to write everything to, as JSON.")


@dataclass(frozen=True, kw_only=True)
class BenchCompareFlags(CompareFlags, BenchServeFlags):
    """All of them."""


SERVE_FLAGS = Command("bench compare", "", "", (), (), BenchServeFlags, "", "", takes_file=False)
COMMAND = Command(
    name="bench compare",
    summary="Compare two servers, or two settings of one.",
    description=(
        "Runs `qanat bench serve` against A and B in turn, in pairs whose order changes (A B, B A, ...), so that what\n"
        "drifts on the machine meets both. Says by how much B is faster with a 95 % interval over the pairs. All\n"
        "flags of `qanat bench serve` but those of files hold for both; --a and --b set what differs.\n"
        "Exit codes: 0 compared, 1 a run had no answer, 2 the command line is at fault, 3 a run is not valid."
    ),
    examples=(
        "qanat bench compare http://10.0.0.1:8000 http://10.0.0.2:8000 --num-prompts 200 --max-concurrency 16",
        "qanat bench compare http://10.0.0.1:8000 --a max-concurrency=8 --b max-concurrency=16 --num-prompts 100",
    ),
    groups=(),
    own=BenchCompareFlags,
    word="URL",
    word_help="Servers A and B; one alone is both.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the comparison.

    Args:
        arguments: the command line without `qanat bench compare`.

    Raises:
        ConfigError: a flag that is not known, is not offered, or has no effect.
    """
    from qanat.bench.online.comparison import comparison_lines, differences, headline

    options, sides = read(arguments)
    shares_server = sides[0].target.address == sides[1].target.address
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    shown: list[dict[str, Any]] = []
    worst = 0
    for number in range(options.pairs):
        results: dict[int, dict[str, Any]] = {}
        detailed: dict[int, dict[str, Any]] = {}
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            found = measure(
                _turn(sides[side], number, side if shares_server else 0), is_quiet=options.disable_tqdm
            )
            results[side] = found.result
            if options.report is not None:
                detailed[side] = with_details(found)
            code = exit_code(found, is_strict=options.strict)
            worst = max(worst, code)
            tell(f"pair {number + 1} of {options.pairs}, {'AB'[side]}: {_summary(found.result)}")
            if found.outcome.load.is_stopped:
                raise KeyboardInterrupt
            if code == FAILED:
                tell(f"{'AB'[side]} answered no request: {found.findings[0].text}")
                return FAILED
        pairs.append((results[0], results[1]))
        if options.report is not None:
            shown.append({"a": detailed[0], "b": detailed[1]})
    compared = differences(pairs)
    answer = headline(compared, has_rate=not sides[0].arrivals.is_at_once)
    everything = {
        "answer": answer.text() if answer is not None else None,
        "differences": {
            one.key: {"percent": 100 * one.mean, "error_percent": 100 * one.error, "num_pairs": one.num_pairs}
            for one in compared
        },
        "pairs": [{"a": first, "b": second} for first, second in pairs],
        "settings": settings_of(options),
    }
    save_json(options.output_json, everything)
    if options.report is not None:
        write_report(options.report, [("qanat bench compare", {**everything, "pairs": shown})])
    if options.json:
        say(json.dumps(everything, indent=2, allow_nan=False))
    else:
        say("\n".join([*comparison_lines(pairs, compared), *([answer.text()] if answer is not None else [])]))
    return worst


def read(arguments: Sequence[str]) -> tuple[BenchCompareFlags, tuple[ServeWish, ServeWish]]:
    """The flags, and the runs of both sides.

    Raises:
        ConfigError: a flag that is not known, is not offered, or has no effect.
    """
    from qanat.cli.bench_actions.refused_flags import refuse_flags
    from qanat.cli.bench_actions.serve_flags import REFUSED

    refuse_flags(arguments, REFUSED)
    values, words = read_values(COMMAND, arguments)
    if len(words) > 2:
        raise ConfigError(f"two servers are compared, got {' and '.join(words)}.", param="URL")
    for name in SAVING:
        if name in values:
            flag = flag_of(name)
            raise ConfigError(f"{flag} is of a single run; --output-json FILE takes all of them.", param=flag)
    options = BenchCompareFlags(**values)
    common = {name: value for name, value in values.items() if name not in vars(CompareFlags())}
    # Latency over the whole answer decides where the rate is given, so it is always measured.
    common.setdefault("percentile_metrics", "ttft,tpot,itl,e2el")
    wishes = []
    for number, own in enumerate((options.a, options.b)):
        mine = dict(common)
        if words:
            mine["base_url"] = words[min(number, len(words) - 1)]
        mine |= _own_values(own, ("--a", "--b")[number])
        wishes.append(checked(BenchServeFlags(**mine)))
    if wishes[0] == wishes[1]:
        tell("A and B are the same: the comparison shows what pairs differ by without a difference")
    return options, (wishes[0], wishes[1])


def _own_values(texts: Sequence[str], flag: str) -> dict[str, Any]:
    """Flags of one side."""
    for text in texts:
        if "=" not in text:
            raise ConfigError(f"{flag} {text}: NAME=VALUE is expected.", param=flag)
    values, _ = read_values(SERVE_FLAGS, [f"--{text.lstrip('-')}" for text in texts])
    for name in (*SAVING, "report"):
        if name in values:
            own = flag_of(name)
            raise ConfigError(
                f"{flag}: {own} is not of one side; --report and --output-json take both.", param=flag
            )
    return values


def _turn(wish: ServeWish, number: int, side: int) -> ServeWish:
    """A side's run of a pair: new prompts for each pair; on one server also for each side, as it caches prefixes."""
    run_id = f"{wish.dataset.run_id} {number} {side}"
    return replace(wish, dataset=replace(wish.dataset, run_id=run_id))


def _summary(result: dict[str, Any]) -> str:
    e2el = result["mean_e2el_ms"]
    return (
        f"{result['output_throughput']:.1f} tokens/s, "
        f"mean E2EL {'n/a' if e2el is None else f'{e2el:.1f} ms'}, {result['qanat']['verdict']}"
    )


def save_json(path: str | None, everything: dict[str, Any]) -> None:
    """Writes the file of --output-json, if one was asked for.

    Raises:
        ConfigError: it cannot be written.
    """
    if path is None:
        return
    try:
        Path(path).expanduser().write_text(json.dumps(everything, allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output-json {path} cannot be written: {error}", param="--output-json") from None
