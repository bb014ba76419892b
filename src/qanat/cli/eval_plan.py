"""What a command line of `qanat eval` asks for: the items, and one or two servers to ask."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from qanat.cli.connection import exchange_with
from qanat.cli.eval_options import AllOptions, is_url, mode_of, pass_sizes
from qanat.config.flag_names import flag_of
from qanat.config.model_source import DEMO_PACKAGE
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.evals.asking import Asker, AskSettings
    from qanat.evals.choices import Scoring
    from qanat.evals.item import EvalItem
    from qanat.evals.likelihood import LikelihoodAsker
    from qanat.evals.prompts import Examples
    from qanat.evals.record import Record, Result
    from qanat.evals.task_files import TaskFile

START_TIMEOUT_S = 30.0
DEFAULT_LOGPROBS = 5


@dataclass(frozen=True)
class Side:
    """One server and how it is asked.

    Attributes:
        title: model and address, for people.
        record: file for its results.
        settings: what a record must agree in.
        asker: asks it.
        concurrency, code_timeout_s, num_samples: of the run.
    """

    title: str
    record: Path | None
    settings: Mapping[str, Any]
    asker: Asker | LikelihoodAsker
    concurrency: int
    code_timeout_s: float
    num_samples: int

    def run(
        self, items: Sequence[EvalItem], record: Record | None, on_result: Callable[[Result], None]
    ) -> list[Result]:
        """Asks it everything that its record has no answer to. Raises HopelessError as `run_items`."""
        from qanat.evals.run import check_scoring, run_items

        if self.asker.settings.scoring != "answer":
            asyncio.run(check_scoring(self.asker))
        return asyncio.run(
            run_items(
                items,
                self.asker,
                concurrency=self.concurrency,
                code_timeout_s=self.code_timeout_s,
                num_samples=self.num_samples,
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
    if options.scoring != "answer":
        _check_choices([*items, *(source or ())], options.scoring)
    _check_passes(items, max(pass_sizes(options), default=1))
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


def _check_choices(items: Sequence[EvalItem], scoring: str) -> None:
    for item in items:
        if item.check != "choice":
            raise ConfigError(
                f"--scoring {scoring} is for multiple choice only; the item {item.item_id} of {item.task} is judged "
                f"by: {item.check}.",
                param="--scoring",
            )


def _check_passes(items: Sequence[EvalItem], k: int) -> None:
    """Of several guesses at a few choices one is right, whoever guesses."""
    for item in items:
        if k > 1 and item.check == "choice":
            guessed = 1 - (1 - 1 / len(item.choices)) ** k
            raise ConfigError(
                f"--pass-at {k} says nothing about multiple choice: guessing alone has a right answer to the item "
                f"{item.item_id} of {item.task} among {k} in {guessed:.0%} of all cases. --pass-at 1 is the share "
                "of right answers.",
                param="--pass-at",
            )


def _notes(options: AllOptions, items: Sequence[EvalItem]) -> Iterator[str]:
    """Flags that mean nothing to some of the items."""
    num_whole = sum(bool(item.messages) for item in items)
    names = ("system", "prompt_template", "num_fewshot")
    given = [flag_of(name) for name in names if getattr(options, name)]
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
        from qanat.evals.asking import Asker
        from qanat.evals.likelihood import LikelihoodAsker
        from qanat.evals.sending import Caller, model_of

        options = self.options
        exchange = exchange_with(url, key_variable, options.ca_file)
        model = model or asyncio.run(model_of(exchange, min(options.timeout_s, START_TIMEOUT_S)))
        settings = self._settings(model)
        caller = Caller(exchange, options.timeout_s, options.retries)
        make = LikelihoodAsker if options.scoring.startswith("likelihood") else Asker
        told = self._told(str(exchange.address), model, settings.logprobs)
        path = Path(record).expanduser() if record else None
        return Side(
            f"{model} at {exchange.address}",
            path,
            told,
            make(caller, settings, self.examples),
            options.concurrency,
            options.code_timeout_s,
            options.num_samples,
        )

    def _settings(self, model: str) -> AskSettings:
        from qanat.evals.asking import NUM_LETTER_LOGPROBS, AskSettings

        options = self.options
        logprobs = options.logprobs
        if logprobs is None:
            logprobs = DEFAULT_LOGPROBS if options.baseline is not None else 0
        settings = AskSettings(
            model=model,
            is_chat=mode_of(options) == "chat",
            is_thinking=options.thinking,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed if options.temperature else None,
            system=options.system,
            template=options.prompt_template,
            stops=tuple(options.stop),
            logprobs=logprobs,
            scoring=cast("Scoring", options.scoring),
            extra_body=options.extra_body or {},
        )
        if options.scoring != "letter":
            return settings
        return replace(settings, is_thinking=False, max_tokens=1, logprobs=NUM_LETTER_LOGPROBS)

    def _told(self, address: str, model: str, logprobs: int) -> dict[str, Any]:
        """Settings that change answers or verdicts; how many are asked, and how fast, is not among them."""
        options = self.options
        names = (
            "thinking", "max_tokens", "temperature", "top_p", "seed", "system", "prompt_template", "stop",
            "extra_body", "num_fewshot", "format", "code_timeout_s",
        )  # fmt: skip
        return {
            "base_url": address,
            "model": model,
            "mode": mode_of(options),
            "logprobs": logprobs,
            **{name: getattr(options, name) for name in names},
            **({"scoring": options.scoring} if options.scoring != "answer" else {}),
            "tasks": {file.path.name: file.digest[:16] for file in self.files},
            "fewshot_file": {file.path.name: file.digest[:16] for file in self.shown},
        }
