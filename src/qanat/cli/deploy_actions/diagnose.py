"""`qanat deploy diagnose`: what logs and metrics say of a service that fails or is slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qanat.cli.command import Command
from qanat.cli.reading import read_action, say, say_json
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.diagnose.diagnosis import LogDiagnosis
    from qanat.deploy.diagnose.evidence import Evidence

FOUND = 1
"""Exit code where something is wrong."""


@dataclass(frozen=True, kw_only=True)
class DiagnoseOptions:
    """Diagnosis."""

    docker: str | None = option(
        Kind.TEXT, None, "Read the log of this container; its image says which version runs."
    )
    image: str | None = option(
        Kind.TEXT,
        None,
        "Image, tag or version of vllm-ascend that ran, e.g. v0.18.0rc1-a3. Default: what the log says.",
    )
    metrics: str | None = option(
        Kind.TEXT,
        None,
        "Answer questions of performance from these metrics: the address of a running server "
        "(http://host:8000, its /metrics is read twice) or a file with what /metrics said.",
    )
    before: str | None = option(
        Kind.TEXT,
        None,
        "With --metrics FILE: an earlier file of the same server, so that what happened in between counts.",
    )
    bench: str | None = option(
        Kind.TEXT, None, "Result of `vllm bench serve --save-result`, for --metrics or alone."
    )
    plan: str | None = option(
        Kind.TEXT,
        None,
        "Plan of the deployment (qanat deploy plan --output), for settings that metrics lack.",
    )
    role: str | None = option(
        Kind.TEXT,
        None,
        "Whose settings of --plan count, where prefill and decode are apart. Default: those of decode.",
        choices=("server", "prefill", "decode"),
    )
    interval_s: float = option(
        Kind.NUMBER, 10.0, "With --metrics ADDRESS: seconds between both readings.", minimum=0.1, maximum=3600
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON.")


COMMAND = Command(
    name="deploy diagnose",
    summary="Say from logs and metrics why a service does not start, fails, or is slow.",
    description=(
        "Reads logs of vLLM-Ascend (files, packed with gzip or not, - for standard input, or a container's) and says\n"
        "how far the start came, what failed first, what only followed, what is known of it, and what the linter says\n"
        "of the settings in the log. Name the logs of all ranks and nodes together: they are merged by time.\n"
        "With --metrics or --bench it answers why prefix caching, speculation, FlashComm1, fused MC2 or asynchronous\n"
        "scheduling bring nothing, where requests wait, and which comparison to run.\n"
        "A start that ends before the engine is ready, without a word why, is something found.\n"
        "Exit codes: 0 nothing wrong found, 1 something found, 2 the command line is at fault, or the file is no log."
    ),
    examples=(
        "qanat deploy diagnose serve.log",
        "qanat deploy diagnose node0.log node1.log plog-4021_20261117.log.gz --json",
        "qanat deploy diagnose --docker qwen-server",
        "qanat deploy diagnose serve.log --metrics http://127.0.0.1:8000 --bench result.json",
    ),
    groups=(),
    own=DiagnoseOptions,
    word="LOG...",
    word_help="Log files.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy diagnose`; returns the exit code.

    Raises:
        ConfigError: nothing to read, something that cannot be read, or flags that do not fit together.
    """
    options, words = read_action(COMMAND, DiagnoseOptions, arguments)
    has_logs = bool(words or options.docker)
    _check(options, has_logs)
    # Files of figures first: a mistake in their names should not show after a gigabyte of logs.
    evidence = _evidence(options) if options.metrics or options.bench else None
    diagnosis = _diagnosis(options, words) if has_logs else None
    texts: list[str] = []
    data: dict[str, object] = {}
    has_faults = False
    if diagnosis is not None:
        from qanat.deploy.diagnose import log_report

        has_faults = diagnosis.has_faults
        texts.append("" if options.json else log_report.text_report(diagnosis))
        data = log_report.json_report(diagnosis) if options.json else {}
    if evidence is not None:
        from qanat.deploy.diagnose import metrics_report
        from qanat.deploy.diagnose.questions import answers
        from qanat.deploy.diagnose.verdict import Answer

        _add_settings(evidence, diagnosis)
        verdicts = list(answers(evidence))
        has_faults = has_faults or any(one.answer is Answer.CAUSE for one in verdicts)
        texts.append(metrics_report.text_report(evidence, verdicts))
        performance = metrics_report.json_report(evidence, verdicts)
        data = {**data, "performance": performance} if diagnosis is not None else performance
    if options.json:
        say_json(data)
    else:
        say("\n\n".join(texts))
    return FOUND if has_faults else 0


def _check(options: DiagnoseOptions, has_logs: bool) -> None:
    if not has_logs and not options.metrics and not options.bench:
        raise ConfigError("name a log, e.g. qanat deploy diagnose serve.log; - reads standard input.")
    if options.before and not options.metrics:
        raise ConfigError("--before goes with --metrics FILE.", param="--before")
    if (options.plan or options.role) and not (options.metrics or options.bench):
        raise ConfigError("--plan is for --metrics or --bench; logs hold their settings.", param="--plan")
    if options.role and not options.plan:
        raise ConfigError("--role names a role of --plan.", param="--role")


def _diagnosis(options: DiagnoseOptions, words: Sequence[str]) -> LogDiagnosis:
    from qanat.deploy.diagnose.diagnosis import diagnose_logs
    from qanat.deploy.diagnose.log_source import container_image, container_source, source_of
    from qanat.deploy.knowledge.versions import parse_image
    from qanat.deploy.lint.engine import ImageError

    sources = [source_of(word) for word in dict.fromkeys(words)]
    image = options.image
    if options.docker:
        sources.append(container_source(options.docker))
        running = container_image(options.docker)
        image = image or (running if running and parse_image(running) else None)
    try:
        diagnosis = diagnose_logs(sources, image)
    except ImageError as error:
        raise ConfigError(f"--image {error}", param="--image") from None
    _require_log(diagnosis)
    return diagnosis


def _require_log(diagnosis: LogDiagnosis) -> None:
    """Refuses what is no log at all, which must not read as one without a fault.

    Raises:
        ConfigError: no line of it has the form of a server's, CANN's or a container's.
    """
    is_binary = any(statistics.is_binary for _, statistics in diagnosis.sources)
    if diagnosis.stages or diagnosis.problems or (diagnosis.is_log and not is_binary):
        return
    names = ", ".join(name for name, _ in diagnosis.sources)
    for name, statistics in diagnosis.sources:
        if statistics.ended_early:
            raise ConfigError(f"{name}: {statistics.ended_early}, and holds no line of a log.")
    if not any(statistics.size_bytes for _, statistics in diagnosis.sources):
        raise ConfigError(f"{names}: the log is empty; did the server write somewhere else?")
    if is_binary:
        raise ConfigError(f"{names}: this is no text; name a log, packed with gzip or not.")
    raise ConfigError(
        f"{names}: no line of vLLM, CANN, Python or a shell's errors in it; is this the server's log?"
    )


def _evidence(options: DiagnoseOptions) -> Evidence:
    from qanat.deploy.diagnose.bench import read_bench
    from qanat.deploy.diagnose.evidence import Evidence, settings_of_plan, view_of
    from qanat.deploy.diagnose.metrics import read_metrics

    evidence = Evidence()
    if options.plan:
        from qanat.deploy.plan.files import read_plan_file

        plan = read_plan_file(Path(options.plan), "--plan")
        try:
            settings = settings_of_plan(plan, options.role)
        except KeyError:
            roles = ", ".join(role.name for role in plan.roles)
            raise ConfigError(
                f"{options.plan} has no role {options.role}; it has {roles}.", param="--role"
            ) from None
        evidence.view = view_of(settings, options.image or plan.image)
        evidence.settings_from = "the plan"
    if options.bench:
        evidence.bench = read_bench(options.bench)
    if options.metrics:
        evidence.metrics = read_metrics(options.metrics, options.before, options.interval_s)
    return evidence


def _add_settings(evidence: Evidence, diagnosis: LogDiagnosis | None) -> None:
    """Takes from the log what no plan has said: what runs goes by the log, what was meant by the plan."""
    from qanat.deploy.diagnose.evidence import evidence_of_log

    if diagnosis is None:
        return
    of_log = evidence_of_log(diagnosis)
    evidence.is_async = of_log.is_async
    if evidence.view is None:
        evidence.view, evidence.settings_from = of_log.view, of_log.settings_from
        evidence.told_sizes = of_log.told_sizes
