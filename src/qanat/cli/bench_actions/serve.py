"""`qanat bench serve`: measures a running server over its API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qanat.cli.bench_actions.common import tell_decisions
from qanat.cli.bench_actions.reporting import check_report, settings_of, with_details, write_report
from qanat.cli.bench_actions.serve_flags import BenchServeFlags
from qanat.cli.command import Command
from qanat.cli.reading import read_action, say
from qanat.cli.terminal import tell
from qanat.config.flag_names import flag_of
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.bench.client.load import Load
    from qanat.bench.online.run import ServeResult
    from qanat.bench.online.wish import ServeWish

ResultT = TypeVar("ResultT")

FAILED, NOT_VALID = 1, 3
"""Exit codes: no request was answered; the figures cannot be believed."""

COMMAND = Command(
    name="bench serve",
    summary="Measure a running server over its API.",
    description=(
        "Sends requests to a server of the OpenAI API (Qanat, vLLM or another) at the times of a schedule made before\n"
        "the run, and reports throughput and latency. Flags, definitions, table and keys of the result are those of\n"
        "`vllm bench serve`. Latency counts from the moment at which the schedule wanted a request sent; the same\n"
        "from its sending stands beside it. A verdict says whether the figures can be believed.\n"
        "Exit codes: 0 measured, 1 no request was answered, 2 the command line is at fault, 3 the run is not valid."
    ),
    examples=(
        "qanat bench serve --random-input-len 200 --num-prompts 200 --request-rate 1 --save-result --result-dir ./",
        "qanat bench serve --base-url http://10.0.0.1:8000 --backend openai-chat --max-concurrency 16 --ignore-eos",
        "qanat bench serve --dataset-name mooncake --dataset-path trace.jsonl --goodput ttft:500 tpot:50",
    ),
    groups=(),
    own=BenchServeFlags,
    word="",
    word_help="",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        arguments: the command line without `qanat bench serve`.

    Raises:
        ConfigError: a flag that is not known, is not offered, or has no effect.
    """
    options, wish = read(arguments)
    result = measure(wish, is_quiet=options.disable_tqdm)
    result.result["label"] = options.label
    result.result.update(_metadata(options.metadata))
    result.result["qanat"]["settings"] = settings_of(options)
    save(options, result.result)
    if options.report is not None:
        write_report(options.report, [(options.label or "qanat bench serve", with_details(result))])
    if options.json:
        say(json.dumps(result.result, indent=2, allow_nan=False))
    else:
        from qanat.bench.online.console import more_lines, table_lines

        shown = (result.result, wish.wanted.metrics, wish.wanted.percentiles)
        say("\n".join([*table_lines(*shown), *more_lines(*shown)]))
    return exit_code(result, is_strict=options.strict)


def read(arguments: Sequence[str]) -> tuple[BenchServeFlags, ServeWish]:
    """The flags, and the run that they ask for.

    Raises:
        ConfigError: a flag that is not known, is not offered, or has no effect.
    """
    from qanat.cli.bench_actions.refused_flags import refuse_flags
    from qanat.cli.bench_actions.serve_flags import REFUSED

    refuse_flags(arguments, REFUSED)
    options, words = read_action(COMMAND, BenchServeFlags, arguments)
    if words:
        raise ConfigError(f"{words[0]} belongs to no flag; a server is named with --base-url.")
    return options, checked(options)


def checked(options: BenchServeFlags) -> ServeWish:
    """The run that flags ask for; what could not be written after it is refused before.

    Raises:
        ConfigError: a value that cannot be, or a flag that has no effect.
    """
    from qanat.cli.bench_actions.serve_wish import always_so, read_wish

    saves = options.save_result or options.append_result
    for name in ("save_detailed", "result_dir", "result_filename"):
        if getattr(options, name) and not saves:
            flag = flag_of(name)
            raise ConfigError(f"{flag} has no effect without --save-result or --append-result.", param=flag)
    _metadata(options.metadata)
    check_report(options.report)
    wish = read_wish(options)
    if saves:
        _make_folder(options)
    tell_decisions(list(always_so(options)))
    return wish


def measure(wish: ServeWish, *, is_quiet: bool = False) -> ServeResult:
    """Runs it, with a view of it on a terminal; Ctrl-C ends the run and keeps what there is."""
    from qanat.bench.online.run import run_serve

    with _progress(is_quiet) as progress:
        return run_loop(run_serve(wish, tell, progress))


def run_loop(main_task: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine on the client's own event loop."""
    from qanat.bench.client.stream_loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main_task)


def exit_code(result: ServeResult, *, is_strict: bool) -> int:
    """The exit code that says how far the result can be believed."""
    from qanat.bench.online.verdict import Grade, grade_of

    if not result.result["completed"]:
        return FAILED
    worst = grade_of(result.findings)
    return NOT_VALID if worst is Grade.INVALID or (is_strict and worst is Grade.DOUBTFUL) else 0


def save(options: BenchServeFlags, result: dict[str, Any]) -> None:
    """Writes or appends the file, if one was asked for.

    Raises:
        ConfigError: it cannot be written.
    """
    if not (options.save_result or options.append_result):
        return
    path = _folder(options) / (options.result_filename or _file_name(options, result))
    text = json.dumps(result, allow_nan=False)
    try:
        if options.append_result:
            with path.open("a", encoding="utf-8") as file:
                file.write(("\n" if file.tell() else "") + text)
        else:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--result-filename {path} cannot be written: {error}", param="--result-filename"
        ) from None
    tell(f"written to {path}")


def _folder(options: BenchServeFlags) -> Path:
    return Path(options.result_dir or ".").expanduser()


def _make_folder(options: BenchServeFlags) -> None:
    """Refuses before the run what could not be written after it."""
    folder = _folder(options)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--result-dir {folder} cannot be made: {error}", param="--result-dir") from None


def _file_name(options: BenchServeFlags, result: dict[str, Any]) -> str:
    """The name that vLLM's command would choose."""
    concurrency = f"-concurrency{options.max_concurrency}" if options.max_concurrency else ""
    model = str(result["model_id"]).rstrip("/").rpartition("/")[2] or "model"
    label = options.label or options.backend
    return f"{label}-{result['request_rate']}qps{concurrency}-{model}-{result['date']}.json"


def _metadata(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.strip():
            raise ConfigError(f"--metadata {text}: KEY=VALUE is expected.", param="--metadata")
        found[name.strip()] = value.strip()
    return found


@contextlib.contextmanager
def _progress(is_quiet: bool) -> Iterator[Callable[[Load, int, float | None], None] | None]:
    """Shows a run while it goes on, where standard error is a terminal."""
    if is_quiet or not sys.stderr.isatty():
        yield None
        return
    from qanat.cli.bench_actions.live_view import live_view

    with live_view() as show:
        yield show
