"""`qanat top`: running servers in the terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qanat.cli.command import Command, help_parser, wants_help
from qanat.cli.connection_flags import ConnectionFlags
from qanat.cli.reading import read_action, say, say_json
from qanat.cli.terminal import tell
from qanat.config.command_line import is_flag
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.bench.live.watch import View, Watched

URL_FLAG = "--base-url"
DEFAULT_URL = "http://127.0.0.1:8000"
UNREACHABLE = 1


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """What is shown."""

    base_url: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        f"Roots of servers, with or without /v1; several, or the flag again, for several. Default: {DEFAULT_URL}.",
    )
    interval: float = option(Kind.NUMBER, 2.0, "Seconds between two readings.", minimum=0.05, maximum=3600)
    window: float = option(
        Kind.NUMBER, 10.0, "Rates and percentiles are those of so many last seconds.", minimum=0.05
    )
    once: bool = option(
        Kind.SWITCH, False, "Read twice, one interval apart, write the figures as plain text, and end."
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON: one document with --once, else a line per reading.")


@dataclass(frozen=True, kw_only=True)
class AllTopOptions(TopOptions, ConnectionFlags):
    """All of them."""


COMMAND = Command(
    name="top",
    summary="Watch running servers in the terminal.",
    description=(
        "Shows what servers do, from their /metrics under vLLM's names (Qanat, vLLM, vLLM-Ascend): requests running\n"
        "and waiting, tokens per second, percentiles of latency, KV cache and prefix hits, speculation, tokens per\n"
        "step, and for Qanat the decisions of its plan. Asks for nothing but /metrics and, once, /v1/plan.\n"
        "Ends with Ctrl-C. Without a terminal it writes plain text, one block per reading.\n"
        "Exit codes: 0, with --once 1 if a server cannot be read, 2 the command line is at fault."
    ),
    examples=(
        "qanat top",
        "qanat top --base-url http://10.0.0.1:8000 http://10.0.0.2:8000 --interval 1",
        "qanat top --once",
        "qanat top --once --json --interval 10",
    ),
    groups=(ConnectionFlags,),
    own=AllTopOptions,
    word="",
    word_help="",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat top`; returns the exit code.

    Raises:
        ConfigError: a flag is wrong.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    options, words = read_action(COMMAND, AllTopOptions, _joined(arguments))
    if words:
        raise ConfigError(f"{words[0]}: qanat top takes flags only; a server is named with --base-url.")
    watched = watched_servers(options)
    if options.once:
        return asyncio.run(_once(options, watched))
    asyncio.run(_follow(options, watched))
    return 0


def _joined(arguments: Sequence[str]) -> list[str]:
    """The command line with all uses of --base-url as one, as it may be given more than once."""
    rest: list[str] = []
    urls: list[str] = []
    is_url = False
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if not is_flag(argument):
            (urls if is_url else rest).append(argument)
        elif name.replace("_", "-") != URL_FLAG:
            rest.append(argument)
            is_url = False
        else:
            urls += [value] if has_value else []
            is_url = not has_value
    return [URL_FLAG, *urls, *rest] if urls else list(arguments)


def watched_servers(options: AllTopOptions) -> list[Watched]:
    """The servers that the flags name, each once.

    Raises:
        ConfigError: a URL, a header or a file of certificates is wrong.
    """
    from qanat.bench.live.watch import Watched
    from qanat.bench.online.target import Target
    from qanat.cli.connection import headers_of, tls_of
    from qanat.deploy.verify.address import read_address

    headers = headers_of(options)
    addresses = dict.fromkeys(read_address(url) for url in options.base_url or (DEFAULT_URL,))
    return [
        Watched(Target(address, "", headers), tls_of(options) if address.is_tls else None, options.window)
        for address in addresses
    ]


async def _once(options: AllTopOptions, watched: Sequence[Watched]) -> int:
    from qanat.bench.live.watch import read_all
    from qanat.cli.top_text import view_lines

    views = await read_all(watched)
    if any(not view.failure for view in views):
        await asyncio.sleep(options.interval)
        views = await read_all(watched)
    failed = [view for view in views if view.failure]
    if options.json:
        say_json({"servers": [view.as_json() for view in views]})
    elif len(failed) < len(views):
        say("\n\n".join("\n".join(view_lines(view)) for view in views if not view.failure))
    for view in failed:
        tell(f"qanat top: error: {view.server} cannot be read: {view.failure}")
    return UNREACHABLE if failed else 0


async def _follow(options: AllTopOptions, watched: Sequence[Watched]) -> None:
    """Reads and shows until it is interrupted."""
    from qanat.bench.live.watch import read_all
    from qanat.cli.top_text import view_lines

    can_draw = sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")
    if can_draw and not options.json:
        await _show(options, watched)
        return
    while True:
        views = await read_all(watched)
        if options.json:
            say(json.dumps({"servers": [view.as_json() for view in views]}, ensure_ascii=False))
        else:
            say("\n\n".join("\n".join(view_lines(view)) for view in views) + "\n")
        await asyncio.sleep(options.interval)


async def _show(options: AllTopOptions, watched: Sequence[Watched]) -> None:
    """The same on the whole screen of a terminal, which is as it was when that ends."""
    from rich.live import Live

    from qanat.bench.live.watch import read_all
    from qanat.cli.top_screen import Screen

    screen = Screen()
    with Live(screen.waiting(), screen=True, auto_refresh=False) as live:
        while True:
            views: list[View] = await read_all(watched)
            live.update(screen.draw(views), refresh=True)
            await asyncio.sleep(options.interval)
