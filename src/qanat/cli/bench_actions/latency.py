"""`qanat bench latency`: one batch of equal requests, repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.cli.bench_actions.common import (
    ENGINE_GROUPS,
    MODEL_HELP,
    OutputOptions,
    check_output,
    limit_lines,
    progress,
    tell_decisions,
    write_result,
)
from qanat.cli.command import MODEL_WORD, Command, read_invocation
from qanat.cli.terminal import require_engine
from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class LatencyOptions:
    """Latency."""

    input_len: int = option(Kind.COUNT, 32, "Tokens of each prompt.", minimum=1)
    output_len: int = option(Kind.COUNT, 128, "Tokens that each request generates.", minimum=1)
    batch_size: int = option(Kind.COUNT, 8, "Requests of a batch.", minimum=1)
    n: int = option(Kind.COUNT, 1, "Sequences for each request.", minimum=1, maximum=128)
    num_iters_warmup: int = option(Kind.COUNT, 10, "Batches before those that count.", minimum=0)
    num_iters: int = option(Kind.COUNT, 30, "Batches that count.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class LatencyFlags(LatencyOptions, OutputOptions):
    """Latency and output."""


COMMAND = Command(
    name="bench latency",
    summary="Time one batch of equal requests, repeated.",
    description=(
        "Times a batch of requests with random token ids from the call until all output is there, again and again.\n"
        "Flags, definitions and the keys of the result are those of `vllm bench latency`. Beside them stand the time\n"
        "to the first token, the time between two tokens, and the least time that the machine's own read rate and\n"
        "multiply-add rate allow, measured in the same run.\n"
        "No tokenizer and no weights are needed: a published name, a config.json or a folder with one is enough."
    ),
    examples=(
        "qanat bench latency --input-len 32 --output-len 32 --batch-size 1",
        "qanat bench latency --model Qwen3.5-0.8B --batch-size 16 --num-iters 5 --num-iters-warmup 1 --json",
        "qanat bench latency ./my-model/config.json --load-format dummy --output-json latency.json",
    ),
    groups=ENGINE_GROUPS,
    own=LatencyFlags,
    word=MODEL_WORD,
    word_help=MODEL_HELP,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        arguments: the command line without `qanat bench latency`.

    Raises:
        QanatError: the model cannot be started, or the requests do not fit.
    """
    invocation = read_invocation(COMMAND, arguments)
    options: LatencyFlags = invocation.own
    check_output(options)
    require_engine(COMMAND.name)
    from qanat.bench.latency import LatencyWish, run_latency
    from qanat.bench.offline import profiled, session

    wish = LatencyWish(
        input_len=options.input_len,
        output_len=options.output_len,
        batch_size=options.batch_size,
        num_warmups=options.num_iters_warmup,
        num_iters=options.num_iters,
        num_choices=options.n,
        temperature=options.temperature,
        is_detokenized=not options.disable_detokenize,
        seed=invocation.wishes.seed or 0,
    )
    with session(invocation.wishes, invocation.environment, has_limits=options.limits) as opened:
        tell_decisions(opened.decisions)
        with (
            profiled(opened.llm, invocation.wishes, is_wanted=options.profile),
            progress(wish.num_iterations, "batches") as tick,
        ):
            result = run_latency(opened, wish, tick)
    tell_decisions(opened.said)
    write_result(options, result, lines(result))
    return 0


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The result for a person."""
    yield f"Avg latency: {result['avg_latency']} seconds"
    for percent, seconds in result["percentiles"].items():
        yield f"{percent}% percentile latency: {seconds} seconds"
    yield ""
    yield _line(
        "Prefill", result, "ttft", "prefill", f"{result['median_ttft_s'] * 1e3:.2f} ms to the first token"
    )
    if "decode_tokens_per_s" in result:
        yield _line(
            "Decode", result, "tpot", "decode", f"{result['median_tpot_s'] * 1e3:.3f} ms between tokens"
        )
    yield from limit_lines(result)


def _line(title: str, result: Mapping[str, Any], time_name: str, part: str, what: str) -> str:
    text = f"{title}: {result[f'{part}_tokens_per_s']:.2f} tokens/s, {what} (median, spread "
    text += f"{result[f'{time_name}_spread']:.0%})"
    limit = result.get(f"{part}_limit")
    if limit is not None:
        text += f"; {limit['share']:.0%} of {limit['tokens_per_s']:.2f} that {limit['binds']} allow"
        text += "s" if limit["binds"].endswith("bandwidth") else ""
    return text
