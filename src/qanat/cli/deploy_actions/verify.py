"""`qanat deploy verify`: a running service asked until it is known to work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qanat.cli.command import Command
from qanat.cli.reading import read_action, say, say_json
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.verify.check import Check, Context, Settings
    from qanat.deploy.verify.exchange import Exchange
    from qanat.deploy.verify.planned import Planned
    from qanat.deploy.verify.run import Outcome

MAX_CONCURRENCY = 512
DEFAULT_CONCURRENCY = 8
FAILED = 1
"""Exit code where a check failed."""
COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Verify."""

    model: str | None = option(
        Kind.TEXT, None, "Name for requests. Default: the first that the service names."
    )
    max_model_len: int | None = option(
        Kind.COUNT, None, "Window in tokens. Default: what the service says.", minimum=1
    )
    concurrency: int | None = option(
        Kind.COUNT,
        None,
        "Streams at once. Default: the plan's, else 8.",
        minimum=1,
        maximum=MAX_CONCURRENCY,
    )
    wait_s: float = option(Kind.NUMBER, 60.0, "Seconds that the service may take to become ready.", minimum=0)
    timeout_s: float = option(
        Kind.NUMBER,
        120.0,
        "Seconds for one request. The prompt at the window's edge may take as long as 500 tokens a second need.",
        minimum=0.1,
    )
    only: tuple[str, ...] = option(Kind.TEXTS, (), "Run these checks and what they need. --list names them.")
    skip: tuple[str, ...] = option(Kind.TEXTS, (), "Leave these checks out.")
    plan: str | None = option(
        Kind.TEXT,
        None,
        "Plan or rendered folder that says URL, model, window and concurrency; flags and URL go before it.",
    )
    api_key_env: str | None = option(
        Kind.TEXT, None, "Name of the environment variable that holds the API key. The key is never printed."
    )
    ca_file: str | None = option(
        Kind.TEXT, None, "Certificates (PEM) to trust for https. Default: the system's."
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON.")
    list: bool = option(Kind.SWITCH, False, "List the checks and exit.")


COMMAND = Command(
    name="deploy verify",
    summary="Ask a running service until it is known to work.",
    description=(
        "Asks a service of the OpenAI API (Qanat, vLLM, vLLM-Ascend, or a proxy in front of them) everything that\n"
        "clients will ask, and some of what they should not: completion, chat with and without thinking, tool calls,\n"
        "streams, log-probabilities of prompts, the window's edge, sampling, mistakes, many requests at once, clients\n"
        "that hang up. Says what it saw, what that usually means, and what to do. Every request has a deadline.\n"
        "Exit codes: 0 no check failed (warnings aside), 1 one failed, 2 the command line is at fault."
    ),
    examples=(
        "qanat deploy verify http://127.0.0.1:8000",
        "qanat deploy verify https://10.0.0.1:8443 --model qwen3.5 --api-key-env SERVICE_KEY --ca-file ca.pem",
        "qanat deploy verify --plan deployment/ --skip window --json",
    ),
    groups=(),
    own=VerifyOptions,
    word="URL",
    word_help="Root of the service, with or without /v1.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy verify`; returns the exit code.

    Raises:
        ConfigError: no URL or a wrong one, an unknown check, a plan, key or certificate that cannot be read.
    """
    options, words = read_action(COMMAND, VerifyOptions, arguments)
    from qanat.deploy.verify.run import chosen

    only, skip = _names(options.only), _names(options.skip)
    checks = chosen(only, skip)
    if options.list:
        say("\n".join(f"{check.name:20}{check.title}" for check in checks))
        return 0
    from qanat.deploy.verify.check import Context
    from qanat.deploy.verify.service import Service

    planned = _planned(options)
    settings = _settings(options, planned)
    if "model" in skip and not settings.model:
        raise ConfigError("--skip model needs --model, as nothing else finds the name.", param="--model")
    service = Service(_exchange(options, words, planned), settings.timeout_s)
    context = Context(service, settings)
    import asyncio

    from qanat.deploy.verify import report

    outcomes = asyncio.run(verify(context, checks, is_quiet=options.json))

    if options.json:
        say_json(report.json_report(outcomes, context))
    return FAILED if report.has_failed(outcomes) else 0


async def verify(context: Context, checks: Sequence[Check], *, is_quiet: bool = False) -> list[Outcome]:
    """Runs checks and shows each outcome as it comes.

    Args:
        context: the service and what is expected of it.
        checks: in order.
        is_quiet: show nothing.
    """
    from qanat.deploy.verify.report import row, summary
    from qanat.deploy.verify.run import run_checks

    outcomes = []
    if not is_quiet:
        _show([str(context.service.exchange.address)])
    async for outcome in run_checks(context, checks):
        outcomes.append(outcome)
        if not is_quiet:
            _show(row(outcome), outcome.status)
    if not is_quiet:
        _show([summary(outcomes)])
    return outcomes


def _show(lines: Sequence[str], status: str = "") -> None:
    """Writes lines; on a terminal the status is coloured."""
    if not sys.stdout.isatty():
        say("\n".join(lines))
        return
    from rich.console import Console
    from rich.text import Text

    text = Text("\n".join(lines))
    if status:
        text.stylize(COLOURS[status], 0, len(status))
    Console(soft_wrap=True, highlight=False).print(text)


def _planned(options: VerifyOptions) -> Planned | None:
    if options.plan is None:
        return None
    from qanat.deploy.verify.planned import read_planned

    return read_planned(options.plan)


def _settings(options: VerifyOptions, planned: Planned | None) -> Settings:
    from qanat.deploy.verify.check import Settings

    by_plan = (
        min(planned.concurrency or DEFAULT_CONCURRENCY, MAX_CONCURRENCY) if planned else DEFAULT_CONCURRENCY
    )
    return Settings(
        model=options.model or (planned.model if planned else None),
        max_model_len=options.max_model_len or (planned.max_model_len if planned else None),
        concurrency=options.concurrency or by_plan,
        wait_s=options.wait_s,
        timeout_s=options.timeout_s,
    )


def _exchange(options: VerifyOptions, words: Sequence[str], planned: Planned | None) -> Exchange:
    """The way to the service.

    Raises:
        ConfigError: no URL, several, a wrong one, or a key or certificate that cannot be read.
    """
    from qanat.cli.connection import exchange_with

    if len(words) > 1:
        raise ConfigError(f"one URL can be verified, got {' and '.join(words)}.")
    url = words[0] if words else planned.url if planned else None
    if url is None:
        why = (
            "the plan has no address of the node that answers"
            if planned
            else "for example http://127.0.0.1:8000"
        )
        raise ConfigError(f"name the URL of the service: {why}.", param="URL")
    return exchange_with(url, options.api_key_env, options.ca_file)


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    """Names that stand beside each other or between commas."""
    return tuple(name for text in texts for name in text.split(",") if name)
