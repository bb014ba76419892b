"""`qanat bench throughput`: many requests that are all there at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.bench.requests import DATASETS, Dataset, make_requests
from qanat.cli.bench_actions.common import (
    ENGINE_GROUPS,
    MODEL_HELP,
    OutputOptions,
    check_output,
    limit_lines,
    tell_decisions,
    write_result,
)
from qanat.cli.bench_actions.refused_flags import NO_HUB, NO_MEDIA, refuse_flags
from qanat.cli.command import MODEL_WORD, Command, read_invocation
from qanat.cli.terminal import require_engine, tell
from qanat.config.flag_names import flag_of
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

ALWAYS_SO = {
    "async_engine": "the model computes in this process either way",
    "disable_frontend_multiprocessing": "the model computes in this process either way",
    "prequeue_requests": "all requests are queued before the first step anyway",
}
"""vLLM's switches that change nothing here, and why."""
REFUSED = {
    **dict.fromkeys(("hf-name", "hf-subset", "hf-split"), NO_HUB),
    **dict.fromkeys(("hf-max-batch-size", "hf-enable-torch-compile"), "--backend hf runs another engine"),
    **dict.fromkeys(("asr-min-audio-len-sec", "asr-max-audio-len-sec", "enable-multimodal-chat"), NO_MEDIA),
    **dict.fromkeys(("lora-path", "lora-assignment"), "adapters are not measured; leave it out"),
}
"""Flags of `vllm bench throughput` that are not offered, and why."""


@dataclass(frozen=True, kw_only=True)
class ThroughputOptions:
    """Throughput."""

    backend: str = option(
        Kind.TEXT, "qanat", "What runs the model; vllm, the default of vLLM's command, means the same."
    )
    dataset_name: str = option(Kind.TEXT, "random", "Where requests come from.", choices=DATASETS)
    dataset_path: str | None = option(
        Kind.TEXT,
        None,
        "File of sharegpt (a JSON list of conversations) or custom (a JSON object a line).",
        aliases=("--dataset",),
    )
    input_len: int | None = option(
        Kind.COUNT,
        None,
        "Tokens of a random prompt. Default: 1024.",
        aliases=("--random-input-len", "--prefix-repetition-suffix-len"),
        minimum=0,
    )
    output_len: int | None = option(
        Kind.COUNT,
        None,
        "Tokens that each request generates. Default: the data set's own; 128 for random.",
        aliases=(
            "--random-output-len",
            "--sharegpt-output-len",
            "--custom-output-len",
            "--prefix-repetition-output-len",
        ),
        minimum=1,
    )
    prefix_len: int = option(
        Kind.COUNT,
        0,
        "Tokens that random prompts begin with in common.",
        aliases=("--random-prefix-len", "--prefix-repetition-prefix-len"),
        minimum=0,
    )
    prefix_repetition_num_prefixes: int = option(
        Kind.COUNT, 10, "Different beginnings of prefix_repetition.", minimum=1
    )
    no_oversample: bool = option(
        Kind.SWITCH, False, "Ask no request of a file twice, even if it has fewer than --num-prompts."
    )
    random_range_ratio: float = option(
        Kind.NUMBER, 0.0, "Random lengths lie between LEN (1 - X) and LEN (1 + X).", minimum=0, maximum=0.999
    )
    num_prompts: int = option(Kind.COUNT, 1000, "Requests.", minimum=1)
    num_warmups: int = option(Kind.COUNT, 0, "Requests that run before and do not count.", minimum=0)
    n: int = option(Kind.COUNT, 1, "Sequences for each request.", minimum=1, maximum=128)
    async_engine: bool = option(
        Kind.SWITCH, False, "Accepted; the model computes in this process either way."
    )
    disable_frontend_multiprocessing: bool = option(Kind.SWITCH, False, "Accepted; the same.")
    prequeue_requests: bool = option(Kind.SWITCH, False, "Accepted; requests are always queued first.")


@dataclass(frozen=True, kw_only=True)
class ThroughputFlags(ThroughputOptions, OutputOptions):
    """Throughput and output."""


COMMAND = Command(
    name="bench throughput",
    summary="Time many requests that are all there at once.",
    description=(
        "Runs requests that are all there at the start, as many at once as fit, and counts what is finished per\n"
        "second. Flags, definitions and the keys of the result are those of `vllm bench throughput`. Beside them\n"
        "stand the machine's limits, measured in the same run.\n"
        "No tokenizer and no weights are needed for random data: a published name, a config.json or a folder with\n"
        "one is enough."
    ),
    examples=(
        "qanat bench throughput --input-len 64 --output-len 32 --num-prompts 100",
        "qanat bench throughput --model Qwen3.5-0.8B --dataset-name random --random-input-len 512 "
        "--random-output-len 64 --num-prompts 32 --output-json throughput.json",
        "qanat bench throughput ./Qwen3.5-0.8B --dataset-name sharegpt --dataset-path conversations.json",
    ),
    groups=ENGINE_GROUPS,
    own=ThroughputFlags,
    word=MODEL_WORD,
    word_help=MODEL_HELP,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        arguments: the command line without `qanat bench throughput`.

    Raises:
        QanatError: the model cannot be started, or a request does not fit.
    """
    refuse_flags(arguments, REFUSED)
    invocation = read_invocation(COMMAND, arguments)
    options: ThroughputFlags = invocation.own
    check_output(options)
    _check_backend(options.backend)
    require_engine(COMMAND.name)
    from qanat.bench.offline import profiled, session
    from qanat.bench.throughput import ThroughputWish, run_throughput

    tell_decisions(list(_ineffective(options)))
    dataset = Dataset(
        name=options.dataset_name,
        path=options.dataset_path,
        num_prompts=options.num_prompts,
        input_len=options.input_len,
        output_len=options.output_len,
        prefix_len=options.prefix_len,
        range_ratio=options.random_range_ratio,
        num_prefixes=options.prefix_repetition_num_prefixes,
        is_oversampled=not options.no_oversample,
        seed=invocation.wishes.seed or 0,
    )
    with session(invocation.wishes, invocation.environment, has_limits=options.limits) as opened:
        tell_decisions(opened.decisions)
        wish = ThroughputWish(
            requests=make_requests(dataset, opened.num_ids, opened.llm.encode),
            num_warmups=options.num_warmups,
            num_choices=options.n,
            temperature=options.temperature,
            is_detokenized=not options.disable_detokenize,
            has_progress_bar=sys.stderr.isatty() and not options.json,
        )
        with profiled(opened.llm, invocation.wishes, is_wanted=options.profile):
            result = run_throughput(opened, wish)
    tell_decisions(opened.said)
    write_result(options, result, lines(result))
    return 0


def _check_backend(backend: str) -> None:
    if backend not in ("qanat", "vllm"):
        raise ConfigError(
            f"--backend {backend}: Qanat measures itself; benchmarks/peers of the repository runs other engines.",
            param="--backend",
        )
    if backend == "vllm":
        tell("--backend vllm -> qanat: this command runs Qanat")


def _ineffective(options: ThroughputFlags) -> Iterator[Decision]:
    for name, why in ALWAYS_SO.items():
        if getattr(options, name):
            yield Decision(flag_of(name), True, "no effect", why)


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The result for a person."""
    yield (
        f"Throughput: {result['requests_per_second']:.2f} requests/s, "
        f"{result['tokens_per_second']:.2f} total tokens/s, "
        f"{result['output_tokens_per_second']:.2f} output tokens/s"
    )
    yield f"Total num prompt tokens:  {result['total_input_tokens']}"
    yield f"Total num output tokens:  {result['total_output_tokens']}"
    yield f"Elapsed:                  {result['elapsed_time']:.2f} s"
    limit = result.get("decode_limit")
    if limit is not None:
        yield (
            f"Decode limit: {limit['tokens_per_s']:.2f} tokens/s by {limit['binds']}, with {limit['num_running']} "
            "requests at once and no prompt to compute"
        )
    yield from limit_lines(result)
