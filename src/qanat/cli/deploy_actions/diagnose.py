"""`qanat deploy diagnose`: what logs and metrics say of a service that fails or is slow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from qanat.cli.command import Command
from qanat.cli.deploy_actions.reading import read_action, say
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

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
        "Exit codes: 0 nothing wrong found, 1 something found, 2 the command line is at fault."
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
    if not words and not options.docker and not options.metrics and not options.bench:
        raise ConfigError("name a log, e.g. qanat deploy diagnose serve.log; - reads standard input.")
    return _logs(options, words)


def _logs(options: DiagnoseOptions, words: Sequence[str]) -> int:
    from qanat.deploy.diagnose.diagnosis import diagnose_logs
    from qanat.deploy.diagnose.log_report import json_report, text_report
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
    if options.json:
        say(json.dumps(json_report(diagnosis), indent=2, ensure_ascii=False))
    else:
        say(text_report(diagnosis))
    return FOUND if diagnosis.has_faults else 0
