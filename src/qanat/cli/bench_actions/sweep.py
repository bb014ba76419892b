"""`qanat bench sweep`: the highest rate that a server takes within bounds of latency."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qanat.cli.bench_actions.compare import SAVING, save_json
from qanat.cli.bench_actions.reporting import settings_of, with_details, write_report
from qanat.cli.bench_actions.serve import FAILED, checked, measure
from qanat.cli.bench_actions.serve_flags import BenchServeFlags
from qanat.cli.command import Command
from qanat.cli.reading import read_values, say
from qanat.cli.terminal import tell
from qanat.config.flag_names import flag_of
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.bench.online.run import ServeResult
    from qanat.bench.online.wish import ServeWish

NOT_FOUND = 1
OF_CLIENT = ("client_late", "client_overloaded")
DISQUALIFYING = ("errors", "rate_not_reached", "drift", *OF_CLIENT)
"""Findings with which a rate does not count as met: the queue grows, or the figures cannot be believed."""


@dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """Search."""

    start_rate: float = option(Kind.NUMBER, 1.0, "First rate, in requests a second.", minimum=0.001)
    max_rate: float | None = option(Kind.NUMBER, None, "No rate above it is tried.", minimum=0.001)
    slo_share: float = option(
        Kind.NUMBER,
        0.99,
        "Share of all requests that must keep every bound of --goodput.",
        minimum=0,
        maximum=1,
    )
    precision: float = option(
        Kind.NUMBER,
        0.1,
        "The search ends when a rate that is met and one that is not differ by it.",
        minimum=0.001,
    )
    max_runs: int = option(Kind.COUNT, 12, "Runs at most.", minimum=2)
    output_json: str | None = option(Kind.TEXT, None, "File to write everything to, as JSON.")


@dataclass(frozen=True, kw_only=True)
class BenchSweepFlags(SweepFlags, BenchServeFlags):
    """All of them."""


COMMAND = Command(
    name="bench sweep",
    summary="Find the highest rate that a server takes within bounds of latency.",
    description=(
        "Runs `qanat bench serve` at rates that double until the bounds of --goodput are missed, then between the\n"
        "last two, until they are close. A rate is met if enough requests keep every bound, none failed, and latency\n"
        "did not grow during the run: a queue that grows is no load that a server takes. Each run has other prompts.\n"
        "Exit codes: 0 found, 1 no rate is met, 2 the command line is at fault."
    ),
    examples=(
        "qanat bench sweep --base-url http://10.0.0.1:8000 --goodput ttft:500 tpot:50 --num-prompts 200",
        "qanat bench sweep --goodput e2el:2000 --start-rate 4 --slo-share 0.95 --output-json sweep.json",
    ),
    groups=(),
    own=BenchSweepFlags,
    word="",
    word_help="",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the search.

    Args:
        arguments: the command line without `qanat bench sweep`.

    Raises:
        ConfigError: a flag that is not known, is not offered, or has no effect.
    """
    from qanat.bench.online.rate_search import RateSearch

    options, wish = read(arguments)
    search = RateSearch(options.start_rate, options.max_rate or math.inf, options.precision, options.max_runs)
    runs: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    while (rate := search.next_rate()) is not None:
        found = measure(_at(wish, rate, len(runs)), is_quiet=options.disable_tqdm)
        if found.outcome.load.is_stopped:
            raise KeyboardInterrupt
        run = {"rate": rate, **_judged(found, options), "result": found.result}
        runs.append(run)
        if options.report is not None:
            shown.append({**run, "result": with_details(found)})
        tell(_line(run))
        if not found.result["completed"]:
            tell(f"no request was answered: {found.findings[0].text}")
            return FAILED
        search.tell(rate, is_met=run["is_met"])
    answer = search.met or None
    missed = None if math.isinf(search.missed) else search.missed
    everything = {
        "highest_rate": answer,
        "lowest_rate_missed": missed,
        "slo_share": options.slo_share,
        "runs": runs,
        "settings": settings_of(options),
    }
    save_json(options.output_json, everything)
    if options.report is not None:
        write_report(options.report, [("qanat bench sweep", {**everything, "runs": shown})])
    if options.json:
        say(json.dumps(everything, indent=2, allow_nan=False))
    else:
        say(
            "\n".join(
                [*(_line(run) for run in sorted(runs, key=lambda run: run["rate"])), _answer(answer, runs)]
            )
        )
    return 0 if answer else NOT_FOUND


def read(arguments: Sequence[str]) -> tuple[BenchSweepFlags, ServeWish]:
    """The flags, and the run that is repeated.

    Raises:
        ConfigError: a flag that is not known, is not offered, or has no effect.
    """
    from qanat.cli.bench_actions.refused_flags import refuse_flags
    from qanat.cli.bench_actions.serve_flags import REFUSED

    refuse_flags(arguments, REFUSED)
    values, words = read_values(COMMAND, arguments)
    if words:
        raise ConfigError(f"{words[0]} belongs to no flag; a server is named with --base-url.")
    for name in (*SAVING, "request_rate", "ramp_up_strategy"):
        if name in values:
            flag = flag_of(name)
            raise ConfigError(
                f"{flag} is of a single run; the search begins at --start-rate, and --output-json takes all runs.",
                param=flag,
            )
    if not values.get("goodput"):
        raise ConfigError("--goodput says what is to be met, such as ttft:500 tpot:50.", param="--goodput")
    common = {name: value for name, value in values.items() if name not in vars(SweepFlags())}
    wish = checked(BenchServeFlags(**common))
    if wish.dataset.name in ("mooncake", "timed_trace", "burstgpt"):
        wish = replace(wish, keeps_trace_times=False)
    return BenchSweepFlags(**values), wish


def _at(wish: ServeWish, rate: float, number: int) -> ServeWish:
    run_id = f"{wish.dataset.run_id} {number}"
    return replace(
        wish, arrivals=replace(wish.arrivals, rate=rate), dataset=replace(wish.dataset, run_id=run_id)
    )


def _judged(found: ServeResult, options: BenchSweepFlags) -> dict[str, Any]:
    """Which share of the requests kept the bounds, and whether that is enough."""
    result = found.result
    num_sent = result["completed"] + result["failed"]
    num_good = result["request_goodput"] * result["duration"]
    share = num_good / num_sent if num_sent else 0.0
    reasons = [finding.code for finding in found.findings if finding.code in DISQUALIFYING]
    if share < options.slo_share - 1e-9:
        reasons.insert(0, "bounds missed")
    return {"share_within_bounds": share, "is_met": not reasons, "reasons": reasons}


def _line(run: dict[str, Any]) -> str:
    result, why = run["result"], ", ".join(run["reasons"])
    ttft = result.get("mean_ttft_ms")
    shown = "n/a" if ttft is None else f"{ttft:.1f} ms"
    return (
        f"{run['rate']:8.2f} requests/s: {100 * run['share_within_bounds']:5.1f} % within bounds, mean TTFT {shown}, "
        f"{result['output_throughput']:.1f} tokens/s: {'met' if run['is_met'] else f'missed ({why})'}"
    )


def _answer(met: float | None, runs: Sequence[dict[str, Any]]) -> str:
    above = [run for run in runs if not run["is_met"] and run["rate"] > (met or 0.0)]
    lowest = min(above, key=lambda run: float(run["rate"]), default=None)
    because = ""
    if lowest is not None and set(lowest["reasons"]) <= set(OF_CLIENT):
        because = " The client, not the server, was late there: give it a core of its own and search again."
    if met is None:
        return f"No rate meets the bounds.{because}"
    until = f"; {lowest['rate']:.2f} does not" if lowest is not None else ", the largest that was tried"
    return f"Highest rate that meets the bounds: {met:.2f} requests/s{until}.{because}"
