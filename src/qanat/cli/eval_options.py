"""The flags of `qanat eval`, and which of them mean nothing together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qanat.config.flag_names import flag_of
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError
from qanat.evals.choices import SCORINGS


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Evaluation."""

    base_url: str = option(
        Kind.TEXT, "http://127.0.0.1:8000", "Root of the server, with or without /v1.", aliases=("--url",)
    )
    model: str | None = option(
        Kind.TEXT, None, "Name for requests. Default: the first that the server names."
    )
    api_key_env: str | None = option(
        Kind.TEXT, None, "Name of the environment variable that holds the API key. The key is never printed."
    )
    ca_file: str | None = option(
        Kind.TEXT, None, "Certificates (PEM) to trust for https. Default: the system's."
    )
    concurrency: int = option(
        Kind.COUNT, 16, "Answers that are waited for at a time.", minimum=1, maximum=4096
    )
    retries: int = option(
        Kind.COUNT, 3, "Further tries for an answer that did not come, with growing pauses.", minimum=0
    )
    timeout_s: float = option(Kind.NUMBER, 600.0, "Seconds for one answer.", minimum=0.1)
    record: str | None = option(
        Kind.TEXT,
        None,
        "File that gets a JSON line for each item. A run that was stopped goes on with what is there; one with other "
        "settings is refused.",
    )
    confidence: float = option(
        Kind.NUMBER, 0.95, "Level of intervals and tests.", minimum=0.5, maximum=0.9999
    )
    json: bool = option(Kind.SWITCH, False, "Write the result as JSON.")
    output_json: str | None = option(Kind.TEXT, None, "File to write the result to, as JSON.")


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Tasks."""

    tasks: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Files (.jsonl, .json, .csv), or folders of them. Default: the demo model's held-out tasks.",
    )
    format: str = option(
        Kind.TEXT,
        "auto",
        "Form of the rows; auto tells it by the columns.",
        choices=("auto", "gsm8k", "choice", "humaneval", "custom"),
    )
    limit: int | None = option(Kind.COUNT, None, "Ask the first so many items of each task.", minimum=1)
    num_fewshot: int = option(Kind.COUNT, 0, "Examples before each question.", minimum=0)
    fewshot_file: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Files or folders that examples come from, matched by task. Default: the tasks themselves.",
    )
    num_samples: int = option(
        Kind.COUNT,
        1,
        "Answers to each item, each with a seed of its own that --seed decides; needs a --temperature above 0.",
        minimum=1,
        maximum=10000,
    )
    pass_at: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "For each such k: how likely at least one of k answers is right, told from the --num-samples answers.",
    )
    allow_code_execution: bool = option(
        Kind.SWITCH,
        False,
        "Run programs that the model writes. They are locked up as far as the kernel lets them be (docs/accuracy.md).",
    )
    code_timeout_s: float = option(Kind.NUMBER, 10.0, "Seconds for one program.", minimum=0.1)


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Questions."""

    mode: str | None = option(
        Kind.TEXT,
        None,
        "Chat completions, or completions for base models. Default: chat; completions for likelihoods.",
        choices=("chat", "completions"),
    )
    scoring: str = option(
        Kind.TEXT,
        "answer",
        "What multiple choice is judged by: the answer's words, the probability of each letter as the first token, or "
        "that of each choice's text, divided by its length or not.",
        choices=SCORINGS,
    )
    thinking: bool | None = option(
        Kind.SWITCH,
        None,
        "Ask with thinking on or off. Default: what the task says, else the model's own way.",
    )
    max_tokens: int | None = option(
        Kind.COUNT,
        None,
        "Longest answer in tokens, thinking included. Default: what the task says, else 2048.",
        minimum=1,
    )
    temperature: float = option(
        Kind.NUMBER, 0.0, "Temperature of sampling; 0 takes the likeliest token.", minimum=0
    )
    top_p: float | None = option(
        Kind.NUMBER, None, "Share of the likeliest tokens to sample from.", minimum=0, maximum=1
    )
    seed: int = option(
        Kind.COUNT, 0, "Draws the examples; sent with requests where the temperature is above 0.", minimum=0
    )
    system: str = option(Kind.TEXT, "", "System text for items without one.")
    prompt_template: str | None = option(
        Kind.TEXT, None, "Text with {question} and {choices} that is asked instead of ours."
    )
    stop: tuple[str, ...] = option(
        Kind.TEXTS, (), "Texts at which an answer ends. In chats they are never looked for in the thinking."
    )
    logprobs: int | None = option(
        Kind.COUNT,
        None,
        "Likeliest tokens to ask for at each place, for the KL of two runs; 0 for none. Default: 5 with --baseline.",
        minimum=0,
        maximum=20,
    )
    extra_body: dict[str, Any] | None = option(Kind.JSON, None, "More fields of each request, before ours.")


@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """Comparison."""

    baseline: str | None = option(Kind.TEXT, None, "Server (URL) or record to compare with, item by item.")
    baseline_model: str | None = option(Kind.TEXT, None, "As --model, of the baseline.")
    baseline_api_key_env: str | None = option(Kind.TEXT, None, "As --api-key-env, of the baseline.")
    baseline_record: str | None = option(Kind.TEXT, None, "As --record, of a baseline that is a server.")
    gate: float | None = option(
        Kind.NUMBER,
        None,
        "Largest loss against the baseline in points (percent of the items): exit code 1 unless the upper end of the "
        "loss's confidence interval lies within.",
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class AllOptions(EvalOptions, TaskOptions, QuestionOptions, BaselineOptions):
    """All flags of `qanat eval`."""


def check_options(options: AllOptions) -> None:
    """Refuses flags that mean nothing together.

    Raises:
        ConfigError: naming the flag.
    """
    if options.baseline is None:
        for name in ("gate", "baseline_model", "baseline_api_key_env", "baseline_record"):
            if getattr(options, name) is not None:
                flag = flag_of(name)
                raise ConfigError(
                    f"{flag} needs --baseline: a server or a record to compare with.", param=flag
                )
    if options.baseline_record is not None and not is_url(options.baseline or ""):
        raise ConfigError("--baseline-record: the baseline is a record already.", param="--baseline-record")
    if options.baseline_record is not None and options.baseline_record == options.record:
        raise ConfigError(
            "--baseline-record: each server needs a record of its own.", param="--baseline-record"
        )
    if options.fewshot_file and not options.num_fewshot:
        raise ConfigError("--fewshot-file needs --num-fewshot: how many examples.", param="--fewshot-file")
    if options.thinking is not None and mode_of(options) == "completions":
        raise ConfigError(
            "--thinking is a matter of chats; completions take a text as it is.", param="--thinking"
        )
    if options.prompt_template is not None and "{question}" not in options.prompt_template:
        raise ConfigError("--prompt-template has no {question} in it.", param="--prompt-template")
    if options.scoring != "answer":
        _check_scoring(options)
    _check_samples(options)


def _check_samples(options: AllOptions) -> None:
    """Several answers must be able to differ, and pass@k needs k of them."""
    if (k := max(pass_sizes(options), default=1)) > options.num_samples:
        raise ConfigError(
            f"--pass-at {k} cannot be told from {options.num_samples} answers to an item: give --num-samples {k} "
            "or more.",
            param="--pass-at",
        )
    if options.num_samples == 1:
        return
    why = f"with --num-samples {options.num_samples}"
    if options.scoring != "answer":
        raise ConfigError(
            f"--scoring {options.scoring} {why}: probabilities are the same each time; ask once.",
            param="--num-samples",
        )
    if options.temperature == 0:
        raise ConfigError(
            f"--temperature 0 {why}: all answers to an item would be the same; give a temperature above 0, such "
            "as 0.8.",
            param="--temperature",
        )
    for name in ("seed", "temperature", "n"):
        if name in (options.extra_body or {}):
            raise ConfigError(
                f"--extra-body with {name} {why}: it would hold for each of them; --seed, --temperature and "
                "--num-samples say what each answer gets.",
                param="--extra-body",
            )


def pass_sizes(options: AllOptions) -> tuple[int, ...]:
    """For which k pass@k is wanted, each once, smallest first.

    Raises:
        ConfigError: one is no whole number above 0.
    """
    for text in options.pass_at:
        if not (text.isascii() and text.isdigit() and int(text)):
            raise ConfigError(f"--pass-at {text}: a whole number from 1 on is meant.", param="--pass-at")
    return tuple(sorted({int(text) for text in options.pass_at}))


def _check_scoring(options: AllOptions) -> None:
    """What asks for no text has no use for the flags of texts."""
    if options.mode == "chat" and options.scoring.startswith("likelihood"):
        raise ConfigError(
            f"--scoring {options.scoring} takes --mode completions: servers score the text of a prompt, not that of a "
            "chat's answer. --scoring letter works with chats.",
            param="--mode",
        )
    for name in ("thinking", "max_tokens", "logprobs", "temperature", "top_p", "stop"):
        if getattr(options, name):
            flag = flag_of(name)
            raise ConfigError(
                f"{flag} means nothing with --scoring {options.scoring}, which reads probabilities and no text.",
                param=flag,
            )


def mode_of(options: AllOptions) -> str:
    """Which endpoint is asked."""
    return options.mode or ("completions" if options.scoring.startswith("likelihood") else "chat")


def is_url(text: str) -> bool:
    """Whether a baseline is a server."""
    return text.startswith(("http://", "https://"))
