"""Flags of the benchmarks of a running server: those of `vllm bench serve`, and ours."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.bench.online.bodies import ENDPOINTS
from qanat.bench.online.measures import INTENDED, SENT
from qanat.bench.online.schedule import EXPONENTIAL, LINEAR
from qanat.cli.bench_actions.refused_flags import NO_HUB, NO_MEDIA, NOT_BUILT_IN
from qanat.cli.connection_flags import ConnectionFlags
from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """Server."""

    backend: str = option(
        Kind.TEXT,
        "openai",
        "API: completions (openai or vllm) or chat.",
        aliases=("--endpoint-type",),
        choices=tuple(ENDPOINTS),
    )
    base_url: str | None = option(
        Kind.TEXT, None, "Root of the server, with or without /v1; goes before --host and --port."
    )
    host: str = option(Kind.TEXT, "127.0.0.1", "Name or address of the server.")
    port: int = option(Kind.COUNT, 8000, "Port of the server.", minimum=1, maximum=65535)
    endpoint: str | None = option(Kind.TEXT, None, "Path of the API. Default: the one of the backend.")
    model: str | None = option(
        Kind.TEXT, None, "Name of the model, for the result. Default: the first that the server names."
    )
    served_model_name: str | None = option(
        Kind.TEXT, None, "Name of the model in requests. Default: the one of --model."
    )
    tokenizer: str | None = option(
        Kind.TEXT, None, "Folder with a tokenizer.json, read where the server has no /tokenize."
    )
    ready_check_timeout_sec: int = option(
        Kind.COUNT, 0, "Seconds that the server may take to become ready; 0 does not wait.", minimum=0
    )
    timeout_s: float = option(Kind.NUMBER, 21600.0, "Seconds that a request may take.", minimum=0.001)
    metrics_interval_s: float = option(
        Kind.NUMBER,
        1.0,
        "Seconds between readings of the server's /metrics during the run; 0 reads before and after it alone.",
        minimum=0,
    )
    profile: bool = option(
        Kind.SWITCH, False, "Have the server record a profile of the run: /start_profile and /stop_profile."
    )


@dataclass(frozen=True, kw_only=True)
class LoadFlags:
    """Load."""

    num_prompts: int = option(Kind.COUNT, 1000, "Requests, or conversations.", minimum=1)
    request_rate: str = option(Kind.TEXT, "inf", "Requests a second; inf sends all at once.")
    burstiness: str = option(
        Kind.TEXT,
        "1.0",
        "Shape of the gamma distribution of the times between requests: 1 is a Poisson process, less is burstier, "
        "inf is an even distance.",
    )
    max_concurrency: int | None = option(
        Kind.COUNT, None, "Requests under way at most. Default: no bound.", minimum=1
    )
    ramp_up_strategy: str | None = option(
        Kind.TEXT, None, "The rate grows during the run.", choices=(LINEAR, EXPONENTIAL)
    )
    ramp_up_start_rps: float | None = option(Kind.NUMBER, None, "Requests a second at the start.", minimum=0)
    ramp_up_end_rps: float | None = option(Kind.NUMBER, None, "Requests a second at the end.", minimum=0)
    num_warmups: int = option(Kind.COUNT, 0, "Requests before the run, which do not count.", minimum=0)
    seed: int = option(Kind.COUNT, 0, "Of prompts, lengths and times.", minimum=0)
    run_id: str = option(
        Kind.TEXT, "", "Mixed into random tokens, so that no prompt begins as one of another run did."
    )
    request_id_prefix: str = option(Kind.TEXT, "bench-", "Of the header X-Request-Id.")


@dataclass(frozen=True, kw_only=True)
class DatasetFlags:
    """Data set."""

    dataset_name: str = option(
        Kind.TEXT,
        "random",
        "random, sharegpt, custom, prefix_repetition, multi_turn, burstgpt, timed_trace or mooncake.",
    )
    dataset_path: str | None = option(Kind.TEXT, None, "File of the data sets that have one.")
    input_len: int | None = option(Kind.COUNT, None, "The same as --random-input-len.", minimum=0)
    output_len: int | None = option(
        Kind.COUNT, None, "Tokens that each request generates, whatever the data set.", minimum=1
    )
    random_input_len: int | None = option(
        Kind.COUNT, None, "Tokens of a random prompt. Default: 1024.", minimum=0
    )
    random_output_len: int | None = option(
        Kind.COUNT, None, "Tokens that a random request generates. Default: 128.", minimum=1
    )
    random_prefix_len: int | None = option(
        Kind.COUNT, None, "Tokens that all random prompts begin with in common. Default: 0.", minimum=0
    )
    random_range_ratio: str | None = option(
        Kind.TEXT,
        None,
        'Random lengths lie between LEN (1 - X) and LEN (1 + X); a number, or JSON: {"input": 0.5, "output": 0.1}. '
        "Default: 0.",
    )
    sharegpt_output_len: int | None = option(
        Kind.COUNT, None, "Tokens to generate. Default: as many as the file's answer has.", minimum=1
    )
    custom_output_len: int | None = option(
        Kind.COUNT, None, "Tokens to generate. Default: output_tokens of the line, else 256.", minimum=1
    )
    prefix_repetition_prefix_len: int | None = option(
        Kind.COUNT, None, "Tokens of each shared beginning. Default: 256.", minimum=1
    )
    prefix_repetition_suffix_len: int | None = option(
        Kind.COUNT, None, "Tokens behind the shared beginning. Default: 256.", minimum=1
    )
    prefix_repetition_num_prefixes: int | None = option(
        Kind.COUNT, None, "Different beginnings. Default: 10.", minimum=1
    )
    prefix_repetition_output_len: int | None = option(
        Kind.COUNT, None, "Tokens to generate. Default: 128.", minimum=1
    )
    multi_turn_num_turns: int | None = option(
        Kind.COUNT, None, "Turns of a conversation at most. Default: 3.", minimum=1
    )
    multi_turn_delay_s: float | None = option(
        Kind.NUMBER, None, "Seconds between an answer and the next turn. Default: 0.", minimum=0
    )
    self_timed: bool | None = option(
        Kind.SWITCH, None, "Send a trace's requests at its own times. Default: yes, without --request-rate."
    )
    timed_trace_sec_multiplier: float | None = option(
        Kind.NUMBER, None, "Seconds of one unit of a trace's times. Default: 1; mooncake 0.001.", minimum=0
    )
    timed_trace_chunk_hash_size: int | None = option(
        Kind.COUNT, None, "Tokens that one hash id stands for. Default: 16; mooncake 512.", minimum=1
    )
    timed_trace_label_timestamp: str | None = option(Kind.TEXT, None, "Key of the time. Default: timestamp.")
    timed_trace_label_input_length: str | None = option(
        Kind.TEXT, None, "Key of the prompt's length. Default: input_length."
    )
    timed_trace_label_output_length: str | None = option(
        Kind.TEXT, None, "Key of the output's length. Default: output_length."
    )
    timed_trace_label_hash_ids: str | None = option(
        Kind.TEXT, None, "Key of the blocks' hash ids. Default: hash_ids."
    )
    disable_shuffle: bool = option(Kind.SWITCH, False, "Take a file's requests in their order.")
    no_oversample: bool = option(
        Kind.SWITCH, False, "Send fewer requests where the file has fewer, and none twice."
    )


@dataclass(frozen=True, kw_only=True)
class RequestFlags:
    """Requests."""

    ignore_eos: bool = option(Kind.SWITCH, False, "Answers have the length that was asked for.")
    streaming: bool = option(
        Kind.SWITCH, True, "Answers come chunk by chunk; without, there is no time to the first token."
    )
    temperature: float | None = option(Kind.NUMBER, None, "Sent if given.", minimum=0)
    top_p: float | None = option(Kind.NUMBER, None, "Sent if given.")
    top_k: int | None = option(Kind.COUNT, None, "Sent if given.")
    min_p: float | None = option(Kind.NUMBER, None, "Sent if given.")
    frequency_penalty: float | None = option(Kind.NUMBER, None, "Sent if given.")
    presence_penalty: float | None = option(Kind.NUMBER, None, "Sent if given.")
    repetition_penalty: float | None = option(Kind.NUMBER, None, "Sent if given.")
    logprobs: int | None = option(
        Kind.COUNT, None, "Log-probabilities of so many tokens in each place.", minimum=0
    )
    chat_template_kwargs: dict[str, object] | None = option(
        Kind.JSON, None, "Variables of the chat template; for --backend openai-chat."
    )
    extra_body: dict[str, object] | None = option(
        Kind.JSON, None, "More fields of every request; they go before all others."
    )


@dataclass(frozen=True, kw_only=True)
class ResultFlags:
    """Result."""

    percentile_metrics: str = option(
        Kind.TEXT, "ttft,tpot,itl", "Metrics of the report, of ttft, tpot, itl and e2el."
    )
    metric_percentiles: str = option(Kind.TEXT, "99", "Percentiles of the report, separated by commas.")
    goodput: tuple[str, ...] = option(
        Kind.TEXTS, (), "Bounds in milliseconds of a good request, such as ttft:200 tpot:20 e2el:5000."
    )
    latency_from: str = option(
        Kind.TEXT,
        INTENDED,
        "Moment that latency counts from: the one in the schedule, or that of the sending.",
        choices=(INTENDED, SENT),
    )
    save_result: bool = option(Kind.SWITCH, False, "Write the result to a file, as JSON.")
    append_result: bool = option(Kind.SWITCH, False, "Append the result to the file, as a line of JSON.")
    save_detailed: bool = option(
        Kind.SWITCH, False, "With lengths, times, text and error of every request in the file."
    )
    result_dir: str | None = option(Kind.TEXT, None, "Folder of the file; made if need be.")
    result_filename: str | None = option(
        Kind.TEXT, None, "Name of the file. Default: made of label, rate, model and date."
    )
    label: str | None = option(Kind.TEXT, None, "Begins the file's name. Default: the backend.")
    metadata: tuple[str, ...] = option(Kind.TEXTS, (), "More fields of the result, each as KEY=VALUE.")
    report: str | None = option(Kind.TEXT, None, "HTML file to write a report with plots to.")
    json: bool = option(Kind.SWITCH, False, "Write the result as JSON to standard output.")
    strict: bool = option(Kind.SWITCH, False, "A doubtful run ends with exit code 3, as an invalid one does.")
    record_memory: int = option(
        Kind.BYTES,
        256 * 2**20,
        "Of answers, so much is kept in memory until the run is over; the rest goes to a temporary file.",
        minimum=0,
    )
    disable_tqdm: bool = option(Kind.SWITCH, False, "Show no progress.")


@dataclass(frozen=True, kw_only=True)
class AlwaysFlags:
    """Without effect."""

    trust_remote_code: bool = option(Kind.SWITCH, False, "Accepted; no code of a model is run.")
    tokenizer_mode: str = option(Kind.TEXT, "auto", "Accepted; tokens are counted by the server.")
    skip_tokenizer_init: bool = option(Kind.SWITCH, False, "Accepted; tokens are counted by the server.")
    skip_chat_template: bool = option(
        Kind.SWITCH, False, "Accepted; prompts are sent as they are, chats as messages."
    )


@dataclass(frozen=True, kw_only=True)
class BenchServeFlags(
    ServerFlags, ConnectionFlags, LoadFlags, DatasetFlags, RequestFlags, ResultFlags, AlwaysFlags
):
    """All of them."""


REFUSED = {
    **dict.fromkeys(("hf-name", "hf-subset", "hf-split", "hf-output-len"), NO_HUB),
    "no-stream": "vLLM's command means data sets of a hub by it, which are not fetched; --no-streaming asks for "
    "answers in one piece",
    **dict.fromkeys(
        (
            *(
                "spec-bench-category",
                "spec-bench-output-len",
                "speed-bench-category",
                "speed-bench-output-len",
            ),
            *("speed-bench-dataset-subset", "sonnet-input-len", "sonnet-output-len", "sonnet-prefix-len"),
            *("blazedit-min-distance", "blazedit-max-distance", "bfcl-categories", "common-prefix-len"),
        ),
        NOT_BUILT_IN,
    ),
    **dict.fromkeys(
        (
            *("asr-min-audio-len-sec", "asr-max-audio-len-sec", "enable-multimodal-chat"),
            *("random-mm-base-items-per-request", "random-mm-bucket-config", "random-mm-limit-mm-per-prompt"),
            "random-mm-num-mm-items-range-ratio",
        ),
        NO_MEDIA,
    ),
    **dict.fromkeys(("no-reranker", "random-batch-size"), "rerankers and embeddings are not measured"),
    **dict.fromkeys(
        ("lora-modules", "lora-assignment"), "adapters are not measured; --served-model-name names one"
    ),
    "use-beam-search": "beam search is not measured",
    "custom-skip-chat-template": "prompts are never put into a template by the client: leave it out",
    "custom-ensure-client-side-data": "media are not measured",
    "probe-request-rate": "no probes are sent beside the load; leave it out",
    **dict.fromkeys(
        ("plot-timeline", "plot-dataset-stats", "timeline-itl-thresholds"),
        "--report FILE.html has all plots",
    ),
}
"""Flags of `vllm bench serve` that are not offered, and why."""
