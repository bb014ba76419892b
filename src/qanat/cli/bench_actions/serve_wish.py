"""Makes what a run needs of the flags of `qanat bench serve`, and refuses flags that would have no effect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from qanat.bench.online.bodies import endpoint_of
from qanat.bench.online.figures import Wanted
from qanat.bench.online.measures import METRICS, Slos
from qanat.bench.online.prompts.prompt import DATASETS, Dataset
from qanat.bench.online.prompts.traces import MOONCAKE_BLOCK_LEN, MOONCAKE_UNIT_S
from qanat.bench.online.schedule import Arrivals
from qanat.bench.online.target import Target
from qanat.bench.online.wish import ServeWish
from qanat.cli.bench_actions.serve_flags import REFUSED, BenchServeFlags
from qanat.cli.connection import headers_of, tls_of
from qanat.config.flag_names import flag_of
from qanat.config.values import read_json
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from qanat.deploy.verify.address import Address, read_address

SAMPLING = (
    *(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
    ),
    "logprobs",
)
TRACES = ("timed_trace", "mooncake", "burstgpt")
OF_DATASETS = {
    "random_": ("random",),
    "sharegpt_": ("sharegpt",),
    "custom_": ("custom",),
    "prefix_repetition_": ("prefix_repetition",),
    "multi_turn_": ("multi_turn",),
    "timed_trace_": ("timed_trace", "mooncake"),
    "self_timed": TRACES,
}
"""Data sets that flags beginning so belong to."""
WITHOUT_FILE = ("random", "prefix_repetition")
SLO_METRICS = ("ttft", "tpot", "e2el")


def always_so(options: BenchServeFlags) -> Iterator[Decision]:
    """Flags that change nothing."""
    reasons = {
        "trust_remote_code": "no code of a model is run",
        "skip_tokenizer_init": "tokens are counted by the server",
        "skip_chat_template": "prompts are sent as they are, chats as messages",
    }
    for name, why in reasons.items():
        if getattr(options, name):
            yield Decision(flag_of(name), True, "no effect", why)
    if options.tokenizer_mode != "auto":
        yield Decision(
            "--tokenizer-mode", options.tokenizer_mode, "no effect", "tokens are counted by the server"
        )


def read_wish(options: BenchServeFlags) -> ServeWish:
    """The run that the flags ask for.

    Raises:
        ConfigError: a value that cannot be, or a flag that would have no effect.
    """
    dataset = read_dataset(options)
    arrivals = read_arrivals(options)
    is_trace = dataset.name in TRACES
    keeps_times = options.self_timed if options.self_timed is not None else arrivals.is_at_once
    if is_trace and keeps_times and not arrivals.is_at_once:
        raise ConfigError(
            "--self-timed sends a trace's requests at its own times: leave --request-rate and --ramp-up-strategy out.",
            param="--self-timed",
        )
    sampling = {name: value for name in SAMPLING if (value := getattr(options, name)) is not None}
    if options.chat_template_kwargs is not None:
        if options.backend != "openai-chat":
            raise ConfigError(
                "--chat-template-kwargs: completions have no template; --backend openai-chat.",
                param="--chat-template-kwargs",
            )
        sampling["chat_template_kwargs"] = options.chat_template_kwargs
    if options.backend == "openai-chat" and "logprobs" in sampling:
        sampling |= {"logprobs": True, "top_logprobs": sampling["logprobs"]}
    address = _address(options)
    return ServeWish(
        target=Target(address, endpoint_of(options.backend, options.endpoint), headers_of(options)),
        backend=options.backend,
        dataset=dataset,
        arrivals=arrivals,
        wanted=read_wanted(options),
        model=options.served_model_name or options.model,
        model_id=options.model,
        tokenizer=options.tokenizer,
        tls=tls_of(options) if address.is_tls else None,
        max_concurrency=options.max_concurrency or 0,
        num_warmups=options.num_warmups,
        sampling=sampling,
        extra=options.extra_body or {},
        ignores_eos=options.ignore_eos,
        is_streamed=options.streaming,
        request_id_prefix=options.request_id_prefix,
        ready_timeout_s=float(options.ready_check_timeout_sec),
        timeout_s=options.timeout_s,
        turn_delay_s=options.multi_turn_delay_s or 0.0,
        metrics_interval_s=options.metrics_interval_s,
        is_profiled=options.profile,
        keeps_texts=options.save_detailed,
        budget_bytes=options.record_memory,
        keeps_trace_times=is_trace and keeps_times,
    )


def read_dataset(options: BenchServeFlags) -> Dataset:
    """The data set that the flags ask for.

    Raises:
        ConfigError: no such data set, or a flag of another one.
    """
    name = options.dataset_name.replace("-", "_")
    if name not in DATASETS:
        why = f" ({REFUSED['hf-name']})" if name == "hf" else ""
        raise ConfigError(
            f"--dataset-name {options.dataset_name}: choose of {', '.join(DATASETS)}{why}.",
            param="--dataset-name",
        )
    _check_dataset_flags(options, name)
    low, high = _ranges(options.random_range_ratio)
    lengths: dict[str, tuple[int | None, int | None]] = {
        "random": (options.random_input_len, options.random_output_len),
        "prefix_repetition": (options.prefix_repetition_suffix_len, options.prefix_repetition_output_len),
        "sharegpt": (None, options.sharegpt_output_len),
        "custom": (None, options.custom_output_len),
    }
    input_len, output_len = lengths.get(name, (None, None))
    prefix_len = options.random_prefix_len or 0
    if name == "prefix_repetition":
        prefix_len = options.prefix_repetition_prefix_len or 256
    is_mooncake = name == "mooncake"
    labels = {
        "timestamp": options.timed_trace_label_timestamp,
        "input": options.timed_trace_label_input_length,
        "output": options.timed_trace_label_output_length,
        "hash_ids": options.timed_trace_label_hash_ids,
    }
    return Dataset(
        name=name,
        path=options.dataset_path,
        count=options.num_prompts,
        input_len=input_len if options.input_len is None else options.input_len,
        output_len=options.output_len or output_len,
        prefix_len=prefix_len,
        num_prefixes=options.prefix_repetition_num_prefixes or 10,
        range_input=low,
        range_output=high,
        num_turns=options.multi_turn_num_turns or 3,
        seed=options.seed,
        run_id=options.run_id,
        is_shuffled=not options.disable_shuffle,
        is_oversampled=not options.no_oversample,
        labels={key: label for key, label in labels.items() if label is not None},
        trace_unit_s=options.timed_trace_sec_multiplier or (MOONCAKE_UNIT_S if is_mooncake else 1.0),
        trace_block_len=options.timed_trace_chunk_hash_size or (MOONCAKE_BLOCK_LEN if is_mooncake else 16),
    )


def _check_dataset_flags(options: BenchServeFlags, dataset: str) -> None:
    for start, owners in OF_DATASETS.items():
        for name in (name for name in vars(options) if name.startswith(start)):
            if getattr(options, name) is not None and dataset not in owners:
                flag = flag_of(name)
                raise ConfigError(
                    f"{flag} has no effect on --dataset-name {dataset}; it belongs to {' and '.join(owners)}. "
                    "--output-len fits any.",
                    param=flag,
                )
    if dataset in WITHOUT_FILE and options.dataset_path is not None:
        raise ConfigError(
            f"--dataset-path: {dataset} reads no file; name its form with --dataset-name sharegpt or custom.",
            param="--dataset-path",
        )
    if options.input_len is not None and dataset not in ("random", "multi_turn", "prefix_repetition"):
        raise ConfigError(
            f"--input-len: the prompts of {dataset} have a length of their own.", param="--input-len"
        )


def _ranges(text: str | None) -> tuple[float, float]:
    """Shares by which input and output lengths may differ from the middle."""
    if text is None:
        return 0.0, 0.0
    flag = "--random-range-ratio"
    try:
        if text.lstrip().startswith("{"):
            value: dict[str, Any] = read_json(text, flag)
            if value.keys() - {"input", "output"}:
                raise ValueError
            shares = float(value.get("input", 0.0)), float(value.get("output", 0.0))
        else:
            shares = float(text), float(text)
        if not all(0 <= share < 1 for share in shares):
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(
            f'{flag} {text}: a number from 0 to below 1, or JSON such as {{"input": 0.5, "output": 0.1}}.',
            param=flag,
        ) from None
    return shares


def read_arrivals(options: BenchServeFlags) -> Arrivals:
    """The times of the requests.

    Raises:
        ConfigError: a rate that is none, or parts of a ramp.
    """
    has_ramp = options.ramp_up_strategy is not None
    for name in ("ramp_up_start_rps", "ramp_up_end_rps"):
        if (getattr(options, name) is not None) != has_ramp:
            raise ConfigError(
                "--ramp-up-strategy, --ramp-up-start-rps and --ramp-up-end-rps go together.",
                param="--ramp-up-strategy",
            )
    return Arrivals(
        rate=_number(options.request_rate, "--request-rate"),
        burstiness=_number(options.burstiness, "--burstiness"),
        ramp=options.ramp_up_strategy or "",
        ramp_start=options.ramp_up_start_rps or 0.0,
        ramp_end=options.ramp_up_end_rps or 0.0,
    )


def _number(text: str, flag: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ConfigError(f"{flag} {text}: a number, or inf.", param=flag)
    return value


def read_wanted(options: BenchServeFlags) -> Wanted:
    """What the result shows.

    Raises:
        ConfigError: a metric or percentile that is none, or a bound that cannot be read.
    """
    metrics = [name.strip() for name in options.percentile_metrics.split(",") if name.strip()]
    for name in metrics:
        if name not in METRICS:
            raise ConfigError(
                f"--percentile-metrics {name}: choose of {', '.join(METRICS)}.", param="--percentile-metrics"
            )
    percentiles = []
    for text in options.metric_percentiles.split(","):
        value = _number(text.strip(), "--metric-percentiles")
        if not 0 <= value <= 100:
            raise ConfigError(f"--metric-percentiles {text}: from 0 to 100.", param="--metric-percentiles")
        percentiles.append(value)
    return Wanted(
        metrics=[name for name in METRICS if name in metrics],
        percentiles=percentiles,
        slos=_slos(options.goodput, options.latency_from),
        latency_from=options.latency_from,
        seed=options.seed,
    )


def _slos(texts: Sequence[str], latency_from: str) -> Slos | None:
    if not texts:
        return None
    bounds = {}
    for text in texts:
        name, _, number = text.partition(":")
        try:
            bounds[name] = float(number) / 1e3
        except ValueError:
            bounds[name] = math.nan
        if name not in SLO_METRICS or not bounds[name] >= 0:
            raise ConfigError(
                f"--goodput {text}: milliseconds for ttft, tpot or e2el, such as ttft:200.", param="--goodput"
            )
    return Slos(bounds, latency_from)


def _address(options: BenchServeFlags) -> Address:
    if options.base_url is not None:
        return read_address(options.base_url)
    host = f"[{options.host}]" if ":" in options.host else options.host
    return read_address(f"http://{host}:{options.port}")
