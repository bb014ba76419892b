"""`qanat eval`: how many answers of a server are right, and whether another server's are as good."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.cli.command import Command, help_parser, wants_help
from qanat.cli.eval_options import (
    AllOptions,
    BaselineOptions,
    EvalOptions,
    QuestionOptions,
    TaskOptions,
    check_options,
    pass_sizes,
)
from qanat.cli.eval_plan import Plan, make_plan
from qanat.cli.reading import read_action, say, say_json
from qanat.cli.terminal import tell
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.evals.record import Draw, Result

COMMAND = Command(
    name="eval",
    summary="Count the right answers of a server, or compare two servers item by item.",
    description=(
        "Asks a server of the OpenAI API (Qanat, vLLM, vLLM-Ascend and others) the questions of local files and\n"
        "counts right answers, with confidence intervals. Files: GSM8K, multiple choice such as C-Eval and MMLU,\n"
        "HumanEval, and a JSON form of our own (docs/accuracy.md). Without files: the demo model's held-out tasks.\n"
        "Answers that were cut, empty answers and errors are counted apart. With --baseline two servers or settings\n"
        "are compared by a paired test; --gate makes an exit code of it.\n"
        "Exit codes: 0 every item was answered and the gate, if any, was met; 1 not so; 2 the command line is at fault."
    ),
    examples=(
        "qanat eval",
        "qanat eval --base-url http://10.0.0.1:8000 --tasks gsm8k_test.jsonl --record gsm8k.jsonl",
        "qanat eval --tasks ceval/val --fewshot-file ceval/dev --num-fewshot 5 --no-thinking",
        "qanat eval --tasks arc_test.jsonl --scoring likelihood-per-character",
        "qanat eval --tasks HumanEval.jsonl --allow-code-execution",
        "qanat eval --tasks HumanEval.jsonl --allow-code-execution --num-samples 20 --pass-at 1 10 --temperature 0.8",
        "qanat eval --base-url http://127.0.0.1:8001 --baseline http://127.0.0.1:8000 --gate 0.5",
        "qanat eval --tasks gsm8k_test.jsonl --thinking --baseline gsm8k-no-thinking.jsonl",
    ),
    groups=(TaskOptions, QuestionOptions, BaselineOptions),
    own=EvalOptions,
    word="",
    word_help="",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat eval`; returns the exit code.

    Raises:
        ConfigError: a flag, a file or the record is wrong.
        HopelessError: the server cannot be asked, or refuses everything.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    options, words = read_action(COMMAND, AllOptions, arguments)
    if words:
        raise ConfigError(f"{words[0]}: qanat eval takes flags only; a server is named with --base-url.")
    check_options(options)
    from qanat.evals.record import read_record

    plan = make_plan(options)
    for note in plan.notes:
        tell(note)
    baseline = None
    if options.baseline is not None and plan.baseline is None:
        _, baseline = read_record(Path(options.baseline).expanduser())
    before, results = _ask(plan, is_quiet=options.json)
    report, lines, is_good = _report(options, plan, before or baseline, results)
    if options.output_json is not None:
        _write(options.output_json, report)
    if options.json:
        say_json(report)
    else:
        say("\n".join(lines))
    return 0 if is_good else 1


def _ask(plan: Plan, *, is_quiet: bool) -> tuple[dict[Draw, Result] | None, list[Result]]:
    """Asks the baseline, where it is a server, and then the server."""
    from qanat.cli.eval_texts import EvalBar
    from qanat.evals.record import Record

    found = []
    with contextlib.ExitStack() as stack:
        sides = [side for side in (plan.baseline, plan.main) if side is not None]
        records = [
            stack.enter_context(Record(side.record, side.settings)) if side.record else None for side in sides
        ]
        for side, record in zip(sides, records, strict=True):
            try:
                with EvalBar(side.title, len(plan.items) * side.num_samples, is_shown=not is_quiet) as bar:
                    found.append(side.run(plan.items, record, bar.show))
            except KeyboardInterrupt:
                if record is not None:
                    tell(f"stopped; the same command line goes on with {record.path}")
                raise
    before = {one.draw: one for one in found[0]} if plan.baseline is not None else None
    return before, found[-1]


def _report(
    options: AllOptions,
    plan: Plan,
    baseline: Mapping[Draw, Result] | None,
    results: Sequence[Result],
) -> tuple[dict[str, Any], list[str], bool]:
    """The result as data and as lines, and whether all was answered and the gate met."""
    from qanat.cli.eval_texts import comparison_lines, score_lines
    from qanat.evals.summary import comparison, match, scores

    table = scores(results, options.confidence, pass_sizes(options))
    report = {"server": plan.main.title, "settings": plan.main.settings, "scores": table}
    lines = [*score_lines(plan.main.title, results, table, options.confidence)]
    is_good = not table["overall"]["errors"]
    if baseline is None:
        return report, lines, is_good
    pairs = match(baseline, results)
    if not pairs.both:
        raise ConfigError(
            "nothing can be compared: the baseline has answers to none of these items; it must have been asked the "
            "same files, as many times each (--num-samples), and this server must answer.",
            param="--baseline",
        )
    compared = comparison(pairs, options.confidence)
    if options.gate is not None:
        compared |= {"gate_points": options.gate, "is_met": compared["loss_bound_points"] <= options.gate}
    report["comparison"] = compared
    lines += ["", *comparison_lines(str(options.baseline), compared)]
    return report, lines, is_good and not compared["unanswered"] and compared.get("is_met", True)


def _write(path: str, report: object) -> None:
    try:
        Path(path).expanduser().write_text(
            json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    except OSError as error:
        tell(f"--output-json {path} cannot be written: {error.strerror}")
