"""The wishes: every setting that a user can express, as flags, variables, a YAML file or keyword arguments.

Each field is declared once, with its help; `qanat serve --help`, the variables `QANAT_<FLAG>` and the flags page of
the documentation are made from it. Flags that only vLLM knows are data (see `qanat.config.known_flags`), not fields.
`None` means that nothing was wished: `resolve` decides then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qanat.config.access_options import AccessOptions
from qanat.config.disk_cache_options import DiskCacheOptions
from qanat.config.operation_options import OperationOptions
from qanat.config.options import Option, option, options_of
from qanat.config.parallel_options import HostOptions, ParallelOptions, ReplicaOptions
from qanat.config.prefix_options import PrefixOptions
from qanat.config.values import Kind
from qanat.core.decision import Decision

DTYPES = ("auto", "bfloat16", "float16", "half", "float32", "float")
"""Spellings of the number types, vLLM's short ones included."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Model."""

    model: str | None = option(
        Kind.TEXT,
        None,
        "Folder with config.json and *.safetensors, or the id of a model on a hub (needs huggingface-hub, or "
        "modelscope with VLLM_USE_MODELSCOPE=True). Default: the demo model, if qanat-demo is installed.",
        aliases=("-m",),
    )
    revision: str | None = option(
        Kind.TEXT, None, "Branch, tag or commit of a hub model. Default: the hub's main branch."
    )
    download_dir: str | None = option(
        Kind.TEXT, None, "Folder for models from a hub. Default: the hub library's own cache."
    )
    dtype: str = option(
        Kind.TEXT, "auto", "Type of weights and computation; auto takes the checkpoint's.", choices=DTYPES
    )
    quantization: str | None = option(
        Kind.TEXT,
        None,
        "How weights are quantised. A checkpoint's own way (ascend, compressed-tensors, fp8, gptq) is recognised "
        "without this flag; w8a8 and w4a8 quantise a plain checkpoint while it is loaded.",
        aliases=("-q",),
    )
    load_format: str = option(
        Kind.TEXT,
        "auto",
        "safetensors (also auto), or dummy: random weights for any config.json, for benchmarks.",
    )
    max_model_len: int | None = option(
        Kind.LENGTH,
        None,
        "Longest prompt and output together, in tokens: 8192, 8k (8000), 8K (8192) or auto. Default (auto): the "
        "model's window, or what fits the memory.",
        minimum=1,
    )
    seed: int | None = option(
        Kind.COUNT,
        None,
        "Base of the random seeds of dummy weights and of requests that bring none. Default: from the system.",
        minimum=-(2**63),
        maximum=2**64 - 1,
    )
    trust_remote_code: bool = option(
        Kind.SWITCH, False, "Accepted for vLLM's command lines; no code from a checkpoint is ever run."
    )


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """Memory and cache."""

    memory_share: float | None = option(
        Kind.NUMBER,
        None,
        "Share of the available memory (the smaller of the container's limit and the free memory) that weights, cache "
        "and workspace may take together. Default: 0.5.",
        minimum=0.01,
        maximum=1.0,
    )
    gpu_memory_utilization: float | None = option(
        Kind.NUMBER,
        None,
        "vLLM's name for --memory-share.",
        aliases=("--device-memory-utilization",),
        minimum=0.01,
        maximum=1.0,
    )
    kv_cache_memory_bytes: int | None = option(
        Kind.BYTES,
        None,
        "Memory for KV blocks and recurrent states, e.g. 4GiB; overrides the share.",
        minimum=1,
    )
    num_gpu_blocks_override: int | None = option(
        Kind.COUNT, None, "Number of KV blocks; overrides share and bytes. For tests.", minimum=2
    )
    block_size: int | None = option(
        Kind.COUNT, None, "Tokens in a KV block: 64 or a divisor of it. Default: 64.", minimum=1
    )
    kv_cache_dtype: str = option(
        Kind.TEXT, "auto", "Type of the KV cache; auto takes the computation's.", choices=(*DTYPES, "int8")
    )


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """Scheduling."""

    max_num_seqs: int | None = option(
        Kind.COUNT, None, "Requests that run at once. Default: 64, or as many as fit the memory.", minimum=1
    )
    max_num_batched_tokens: int | None = option(
        Kind.COUNT, None, "Tokens that one step computes at most. Default: 512.", minimum=1
    )
    scheduling_policy: str = option(
        Kind.TEXT,
        "fcfs",
        "First come first served, or by each request's priority.",
        choices=("fcfs", "priority"),
    )
    enable_chunked_prefill: bool = option(
        Kind.SWITCH, True, "Split long prompts over several steps, so that running requests go on meanwhile."
    )
    long_prefill_token_threshold: int = option(
        Kind.COUNT, 0, "Tokens of one prompt that one step computes at most; 0 is no bound.", minimum=0
    )
    max_decode_stall_s: float = option(
        Kind.NUMBER, 0.5, "Seconds that a step's prefill may hold running requests up.", minimum=0.001
    )
    max_num_queued_reqs: int = option(
        Kind.COUNT, 2048, "Requests that may wait; more are refused with status 429.", minimum=1
    )
    max_num_queued_tokens: int = option(
        Kind.COUNT, 8_388_608, "Prompt tokens of the requests that may wait.", minimum=1
    )
    max_queue_wait_s: float | None = option(
        Kind.NUMBER,
        None,
        "Seconds that a request may wait for its first step; one that would wait longer, by the pace measured so far, "
        "is refused with status 429. Default: no bound.",
        minimum=0.001,
    )
    async_scheduling: bool | None = option(
        Kind.SWITCH, None, "Schedule a step while the one before computes. Default: where that helps."
    )
    max_logprobs: int = option(
        Kind.COUNT, 20, "Alternatives per position that a request may ask for.", minimum=0, maximum=20
    )


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Execution."""

    num_threads: int | None = option(
        Kind.COUNT,
        None,
        "CPU threads of the kernels. Default: OMP_NUM_THREADS if set, else the cores that this process may use; one "
        "for small models.",
        minimum=1,
    )
    cpu_binding: bool | None = option(
        Kind.SWITCH,
        None,
        "Pin each computing thread to a processor of its own, second hardware threads of a core last, and keep the "
        "server's own process off them. Default: off.",
    )
    enforce_eager: bool = option(Kind.SWITCH, False, "No graphs: every step calls its ops from Python.")
    compilation_config: Mapping[str, Any] | None = option(
        Kind.JSON,
        None,
        'Graphs, as JSON: {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8]}; modes are '
        "NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE. Default: FULL_DECODE_ONLY with native kernels.",
        aliases=("-O", "-cc"),
    )
    cudagraph_capture_sizes: tuple[str, ...] | None = option(
        Kind.TEXTS,
        None,
        "Numbers of tokens that graphs are captured for; a step is padded to the next. Default: 1, 2, 4, then steps of "
        "8 and from 256 on of 16, as far as --max-num-seqs can use them.",
    )
    max_cudagraph_capture_size: int | None = option(
        Kind.COUNT, None, "End of that default list; larger steps run without a graph.", minimum=1
    )
    speculative_config: Mapping[str, Any] | None = option(
        Kind.JSON,
        None,
        'Speculative decoding, as JSON: {"method": "ngram", "num_speculative_tokens": 3}. Output stays the same, token '
        'for token. "adaptive": false holds the number of drafts fixed.',
        aliases=("-sc",),
    )
    additional_config: Mapping[str, Any] | None = option(
        Kind.JSON,
        None,
        "vLLM-Ascend's own options, as JSON; checked, without effect on this platform but for enable_cpu_binding.",
    )
    profiler_config: Mapping[str, Any] | None = option(
        Kind.JSON,
        None,
        'Profiler, as JSON: {"profiler": "torch", "torch_profiler_dir": "./profiles"}; /start_profile and '
        "/stop_profile record with it. Default: off.",
    )
    structured_outputs_config: Mapping[str, Any] | None = option(
        Kind.JSON,
        None,
        "Structured output, as JSON: backend (guidance or xgrammar), compile_timeout_s (5), max_form_bytes (1MiB), "
        "max_grammar_bytes (2MiB), max_compile_memory_bytes (256MiB), disable_any_whitespace, "
        "disable_additional_properties, enable_in_reasoning.",
    )
    guided_decoding_backend: str | None = option(
        Kind.TEXT, None, "Older name of --structured-outputs-config.backend."
    )
    enable_nan_check: bool = option(
        Kind.SWITCH, True, "End a request with an error when its logits are not finite."
    )
    init_timeout_s: float | None = option(
        Kind.NUMBER,
        None,
        "Seconds within which the engine must be ready. Default: 600; ranks must report within 60 of them.",
        aliases=("--init-timeout",),
        minimum=1,
    )
    step_timeout_s: float | None = option(
        Kind.NUMBER,
        None,
        "Seconds after which /health fails if work waits and no step has ended. Default: 120.",
        minimum=1,
    )


@dataclass(frozen=True, kw_only=True)
class ServerOptions(AccessOptions):
    """Server."""

    host: str = option(
        Kind.TEXT, "127.0.0.1", "Address to listen on; 0.0.0.0 is every network of this machine."
    )
    port: int = option(Kind.COUNT, 8000, "TCP port; 0 takes a free one.", minimum=0, maximum=65535)
    uds: str | None = option(Kind.TEXT, None, "Unix socket to listen on, instead of host and port.")
    max_request_bytes: int = option(
        Kind.BYTES, 32 * 2**20, "Largest request body; larger ones are refused with status 413.", minimum=1
    )
    allowed_origins: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Origins of web pages that may call the server from a browser (CORS), as words or one JSON list; * is any. "
        "Default: none; vLLM's is any.",
    )
    allowed_methods: tuple[str, ...] = option(
        Kind.TEXTS, (), "Methods that those pages may use. Default: any."
    )
    allowed_headers: tuple[str, ...] = option(
        Kind.TEXTS, (), "Request headers that those pages may send. Default: any."
    )
    allow_credentials: bool = option(
        Kind.SWITCH, False, "Let those pages send cookies and client certificates; needs origins by name."
    )
    ssl_certfile: str | None = option(
        Kind.TEXT, None, "Certificate and its chain (PEM); serves HTTPS. Read again when the file changes."
    )
    ssl_keyfile: str | None = option(
        Kind.TEXT, None, "Private key of the certificate (PEM, no passphrase). Default: in its file."
    )
    ssl_ca_certs: str | None = option(
        Kind.TEXT,
        None,
        "Authorities (PEM) of which one must have signed the client's certificate. Default: clients need none.",
    )
    ssl_cert_reqs: int | None = option(
        Kind.COUNT,
        None,
        "Whether clients need a certificate: 0 no, 1 it is checked if there is one, 2 yes. Default: 2 with "
        "--ssl-ca-certs, else 0; vLLM's is 0.",
        minimum=0,
        maximum=2,
    )
    served_model_name: tuple[str, ...] = option(
        Kind.TEXTS, (), "Names under which clients know the model; the first is reported. Default: --model."
    )
    chat_template: str | None = option(
        Kind.TEXT, None, "File with a chat template, or the template itself. Default: the checkpoint's."
    )
    default_chat_template_kwargs: Mapping[str, Any] | None = option(
        Kind.JSON, None, 'Template arguments of requests that bring none, e.g. {"enable_thinking": false}.'
    )
    generation_config: str = option(
        Kind.TEXT,
        "auto",
        "Where sampling fields that a request leaves out come from: auto is the checkpoint's generation_config.json, "
        "a folder that folder's, vllm nothing but neutral values.",
    )
    override_generation_config: Mapping[str, Any] | None = option(
        Kind.JSON, None, 'Sampling fields that go before the file, e.g. {"temperature": 0.6}.'
    )
    reasoning_parser: str | None = option(
        Kind.TEXT, None, "How thinking is told from the answer; none switches it off. Default: by the model."
    )
    tool_call_parser: str | None = option(
        Kind.TEXT,
        None,
        "How the model writes tool calls: hermes is JSON (Qwen3), qwen3_coder, also named qwen3_xml, is XML (Qwen3.5 "
        "and later, Qwen3-Coder); none leaves calls in the text. Default: by the model.",
        choices=("hermes", "qwen3_coder", "qwen3_xml", "none"),
    )
    enable_auto_tool_choice: bool = option(
        Kind.SWITCH,
        True,
        "Tell tool calls from the text where a request offers tools; on without this flag, which vLLM's command lines "
        "bring.",
    )
    uvicorn_log_level: str = option(
        Kind.TEXT,
        "info",
        "Least severe message of the HTTP server that is logged.",
        choices=("critical", "error", "warning", "info", "debug", "trace"),
    )
    disable_uvicorn_access_log: bool = option(Kind.SWITCH, False, "No log line per HTTP request.")
    disable_fastapi_docs: bool = option(
        Kind.SWITCH, False, "Do not answer /openapi.json, which describes the API to programs."
    )
    log_level: str | None = option(
        Kind.TEXT,
        None,
        "Least severe message of Qanat that is logged. Default: info.",
        choices=("critical", "error", "warning", "info", "debug"),
    )
    log_format: str = option(
        Kind.TEXT,
        "text",
        "How the log is written: text, or json with one object per line, those of the engine's process included.",
        choices=("text", "json"),
    )


GROUPS: tuple[type, ...] = (
    ModelOptions,
    CacheOptions,
    PrefixOptions,
    DiskCacheOptions,
    SchedulerOptions,
    ParallelOptions,
    ReplicaOptions,
    HostOptions,
    ExecutionOptions,
    ServerOptions,
    AccessOptions,
    OperationOptions,
)


@dataclass(frozen=True, kw_only=True)
class EngineConfig(
    ModelOptions,
    CacheOptions,
    PrefixOptions,
    DiskCacheOptions,
    SchedulerOptions,
    ParallelOptions,
    ReplicaOptions,
    HostOptions,
    ExecutionOptions,
    ServerOptions,
    OperationOptions,
):
    """All wishes in one flat, frozen object: `EngineConfig(model="./Qwen3-0.6B", max_num_seqs=8)`.

    An unknown keyword raises TypeError, a value out of bounds ConfigError.

    Attributes:
        foreign_flags: flags of vLLM without a field here that were given, with their parsed values.
        notes: decisions taken while the wishes were read (spelling, precedence), printed with the others.
    """

    foreign_flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[Decision, ...] = ()

    def __post_init__(self) -> None:
        """Checks types, choices and bounds.

        Raises:
            ConfigError: naming the flag and what is allowed.
        """
        for known in OPTIONS.values():
            known.check(getattr(self, known.name), known.flag)


OPTIONS: dict[str, Option] = {known.name: known for group in GROUPS for known in options_of(group)}
"""Every flag with a field, by field name, in the order of the help."""
