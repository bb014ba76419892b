"""What a command line of `qanat eval` asks for: the items, and one or two servers to ask."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.verify.exchange import Exchange
    from qanat.evals.asking import Asker
    from qanat.evals.item import EvalItem
    from qanat.evals.prompts import Examples
    from qanat.evals.record import Record, Result
    from qanat.evals.task_files import TaskFile

DEMO_PACKAGE = "qanat_demo"
START_TIMEOUT_S = 30.0
DEFAULT_LOGPROBS = 5


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
    allow_code_execution: bool = option(
        Kind.SWITCH,
        False,
        "Run programs that the model writes. They are locked up as far as the kernel lets them be (docs/accuracy.md).",
    )
    code_timeout_s: float = option(Kind.NUMBER, 10.0, "Seconds for one program.", minimum=0.1)


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Questions."""

    mode: str = option(
        Kind.TEXT,
        "chat",
        "Chat completions, or completions for base models.",
        choices=("chat", "completions"),
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


@dataclass(frozen=True)
class Side:
    """One server and how it is asked.

    Attributes:
        title: model and address, for people.
        record: file for its results.
        settings: what a record must agree in.
        asker: asks it.
        concurrency, code_timeout_s: of the run.
    """

    title: str
    record: Path | None
    settings: Mapping[str, Any]
    asker: Asker
    concurrency: int
    code_timeout_s: float

    def run(
        self, items: Sequence[EvalItem], record: Record | None, on_result: Callable[[Result], None]
    ) -> list[Result]:
        """Asks it everything that its record has no answer to. Raises HopelessError as `run_items`."""
        from qanat.evals.run import run_items

        return asyncio.run(
            run_items(
                items,
                self.asker,
                concurrency=self.concurrency,
                code_timeout_s=self.code_timeout_s,
                record=record,
                on_result=on_result,
            )
        )


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        items: to ask.
        main: the server.
        baseline: the other one, where the baseline is a server.
        notes: flags without effect, and why.
    """

    items: tuple[EvalItem, ...]
    main: Side
    baseline: Side | None
    notes: tuple[str, ...] = ()


def check_options(options: AllOptions) -> None:
    """Refuses flags that mean nothing together.

    Raises:
        ConfigError: naming the flag.
    """
    if options.baseline is None:
        for name in ("gate", "baseline_model", "baseline_api_key_env", "baseline_record"):
            if getattr(options, name) is not None:
                flag = "--" + name.replace("_", "-")
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
    if options.thinking is not None and options.mode == "completions":
        raise ConfigError(
            "--thinking is a matter of chats; completions take a text as it is.", param="--thinking"
        )
    if options.prompt_template is not None and "{question}" not in options.prompt_template:
        raise ConfigError("--prompt-template has no {question} in it.", param="--prompt-template")


def is_url(text: str) -> bool:
    """Whether a baseline is a server."""
    return text.startswith(("http://", "https://"))


def make_plan(options: AllOptions) -> Plan:
    """Reads the files, asks the servers for their models.

    Raises:
        ConfigError: a file or an address is wrong, or programs would be run without leave.
        HopelessError: a server cannot be asked.
    """
    from qanat.evals.prompts import choose_examples
    from qanat.evals.task_files import read_task_files

    paths = options.tasks or (demo_tasks(),)
    files = read_task_files(paths, options.format)
    every = [item for file in files for item in file.items]
    items = _first(every, options.limit)
    if any(item.code for item in items) and not options.allow_code_execution:
        raise ConfigError(
            "these tasks run programs that the model writes; --allow-code-execution says that this may be done here.",
            param="--allow-code-execution",
        )
    shown = (
        read_task_files(options.fewshot_file, options.format, "--fewshot-file")
        if options.fewshot_file
        else []
    )
    source = [item for file in shown for item in file.items] if shown else None
    examples = choose_examples(every, source, options.num_fewshot, options.seed)
    make = _SideMaker(options, files, shown, examples)
    main = make(options.base_url, options.model, options.api_key_env, options.record)
    for item in items:
        main.asker.body(item)  # what cannot be asked in this mode is refused before anything is
    baseline = None
    if options.baseline is not None and is_url(options.baseline):
        baseline = make(
            options.baseline, options.baseline_model, options.baseline_api_key_env, options.baseline_record
        )
    return Plan(tuple(items), main, baseline, tuple(_notes(options, items)))


def _notes(options: AllOptions, items: Sequence[EvalItem]) -> Iterator[str]:
    """Flags that mean nothing to some of the items."""
    num_whole = sum(bool(item.messages) for item in items)
    names = ("system", "prompt_template", "num_fewshot")
    given = ["--" + name.replace("_", "-") for name in names if getattr(options, name)]
    if num_whole and given:
        yield f"{', '.join(given)} -> no effect on {num_whole} items: they bring a conversation of their own"


def demo_tasks() -> str:
    """The file of the demo model's held-out tasks.

    Raises:
        ConfigError: the demo model is not installed, or has no tasks yet.
    """
    if importlib.util.find_spec(DEMO_PACKAGE) is None:
        raise ConfigError(
            "no tasks were named, and those of the demo model are not installed: give files as --tasks, or install the "
            "package qanat-demo.",
            param="--tasks",
        )
    package = importlib.import_module(DEMO_PACKAGE)
    if not hasattr(package, "tasks_path"):
        raise ConfigError(
            "the installed qanat-demo is too old to have tasks: install the one of this Qanat.",
            param="--tasks",
        )
    return str(package.tasks_path())


def _first(items: Sequence[EvalItem], limit: int | None) -> list[EvalItem]:
    counts: dict[str, int] = {}
    chosen = []
    for item in items:
        counts[item.task] = counts.get(item.task, 0) + 1
        if limit is None or counts[item.task] <= limit:
            chosen.append(item)
    return chosen


@dataclass(frozen=True)
class _SideMaker:
    """Makes both servers with the same settings."""

    options: AllOptions
    files: Sequence[TaskFile]
    shown: Sequence[TaskFile]
    examples: Examples

    def __call__(self, url: str, model: str | None, key_variable: str | None, record: str | None) -> Side:
        from qanat.evals.asking import Asker, AskSettings, model_of

        options = self.options
        exchange = self._exchange(url, key_variable)
        model = model or asyncio.run(model_of(exchange, min(options.timeout_s, START_TIMEOUT_S)))
        logprobs = options.logprobs
        if logprobs is None:
            logprobs = DEFAULT_LOGPROBS if options.baseline is not None else 0
        settings = AskSettings(
            model=model,
            is_chat=options.mode == "chat",
            is_thinking=options.thinking,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed if options.temperature else None,
            system=options.system,
            template=options.prompt_template,
            stops=tuple(options.stop),
            logprobs=logprobs,
            extra_body=options.extra_body or {},
        )
        asker = Asker(exchange, settings, self.examples, options.timeout_s, options.retries)
        told = self._told(str(exchange.address), model, logprobs)
        path = Path(record).expanduser() if record else None
        return Side(
            f"{model} at {exchange.address}", path, told, asker, options.concurrency, options.code_timeout_s
        )

    def _exchange(self, url: str, key_variable: str | None) -> Exchange:
        from qanat.cli.connection import key_of, trust_of
        from qanat.deploy.verify.address import read_address
        from qanat.deploy.verify.exchange import Exchange

        ca_file = self.options.ca_file
        trust = trust_of(ca_file) if ca_file is not None else None
        return Exchange(read_address(url), key_of(key_variable), trust)

    def _told(self, address: str, model: str, logprobs: int) -> dict[str, Any]:
        """Settings that change answers or verdicts; how many are asked, and how fast, is not among them."""
        options = self.options
        names = (
            "mode", "thinking", "max_tokens", "temperature", "top_p", "seed", "system", "prompt_template", "stop",
            "extra_body", "num_fewshot", "format", "code_timeout_s",
        )  # fmt: skip
        return {
            "base_url": address,
            "model": model,
            "logprobs": logprobs,
            **{name: getattr(options, name) for name in names},
            "tasks": {file.path.name: file.digest[:16] for file in self.files},
            "fewshot_file": {file.path.name: file.digest[:16] for file in self.shown},
        }
