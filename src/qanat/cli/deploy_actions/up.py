"""`qanat deploy up`: runs a rendered folder on this host."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qanat.cli.command import Command
from qanat.cli.reading import read_action, say
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.up.folder import DeployedNode, Folder
    from qanat.deploy.up.session import Session
    from qanat.deploy.up.unit import Unit
    from qanat.deploy.up.waiting import UnitError

FAILED = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNAL_EXIT_BASE = 128
"""A command that a signal ended has this exit code plus the signal's number."""
DEFAULT_STALL_S = 1200.0


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """Up."""

    node: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Which nodes of the deployment this host is. Default: those that have an address of it.",
    )
    detach: bool = option(Kind.SWITCH, False, "Leave it running and end, once it is verified.")
    stop: bool = option(Kind.SWITCH, False, "Stop what runs of the folder on this host, and end.")
    skip_preflight: bool = option(Kind.SWITCH, False, "Start without looking at the host before.")
    skip_verify: bool = option(Kind.SWITCH, False, "Do not ask the service whether it works.")
    keep: bool = option(Kind.SWITCH, False, "Leave what was started running if something fails.")
    timeout_s: float | None = option(
        Kind.NUMBER,
        None,
        "Seconds that an engine may take until it answers. Default: READY_TIMEOUT_S of env.sh.",
        minimum=1,
    )
    stall_s: float = option(
        Kind.NUMBER,
        DEFAULT_STALL_S,
        "Seconds without a new line in its log after which a start counts as failed.",
        minimum=1,
    )
    api_key_env: str | None = option(
        Kind.TEXT, None, "Name of the environment variable that holds the API key, for the verification."
    )


COMMAND = Command(
    name="deploy up",
    summary="Run a rendered folder on this host.",
    description=(
        "Runs the folder that `qanat deploy render` wrote, as far as it belongs to this host: checks the host, starts\n"
        "the engines and the proxy, tells the stages of the start from their logs, asks the service whether it works,\n"
        "and stays until Ctrl-C, which stops everything again. If a start fails or stands still, the end of the log\n"
        "and its diagnosis are shown, and what was started is stopped. What runs already is left alone.\n"
        "Exit codes: 0 it ran and was stopped, or runs; 1 something failed; 2 the command line or the folder is at\n"
        "fault; 130, 143 or 129 it was interrupted before it was ready."
    ),
    examples=(
        "qanat deploy up deployment/",
        "qanat deploy up deployment/ --node decode-0 --detach",
        "qanat deploy up deployment/ --stop",
    ),
    groups=(),
    own=UpOptions,
    word="FOLDER",
    word_help="Folder that qanat deploy render wrote.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy up`; returns the exit code.

    Raises:
        ConfigError: no folder, one that render did not write, a node it does not have, flags that exclude each other.
    """
    options, words = read_action(COMMAND, UpOptions, arguments)
    if len(words) != 1:
        raise ConfigError("name the one folder to run, such as deployment/.")
    if options.stop and (options.detach or options.keep):
        raise ConfigError(
            "--stop ends what runs; --detach and --keep leave it; leave one out.", param="--stop"
        )
    from qanat.cli.connection import key_of
    from qanat.deploy.preflight.host import ThisHost
    from qanat.deploy.preflight.network import own_addresses
    from qanat.deploy.rendered.inputs import read_plan
    from qanat.deploy.up.folder import read_folder
    from qanat.deploy.up.session import Session
    from qanat.deploy.up.waiting import Patience

    key_of(options.api_key_env)
    folder = read_folder(words[0])
    read_plan(words[0])  # what is wrong with it is told before anything is started
    nodes = folder.nodes_here(options.node, own_addresses(ThisHost()))
    patience = Patience(options.timeout_s or folder.ready_timeout_s, options.stall_s)
    session = Session(folder, nodes, patience, tell)
    if options.stop:
        return asyncio.run(_stop(session, session.units))
    states = asyncio.run(session.states())
    if set(states.values()) != {"healthy"} and not options.skip_preflight:
        if not _preflight(folder, [node for node in nodes if states[node.name] == "down"]):
            return FAILED
    return asyncio.run(_Run(session, folder, options).run())


def tell(text: str) -> None:
    """Says something to whoever still reads: a terminal that is gone must not keep us from stopping."""
    with contextlib.suppress(OSError):
        say(text)


def _preflight(folder: Folder, nodes: Sequence[DeployedNode]) -> bool:
    """Looks at this host as each of the nodes; True if nothing failed."""
    from qanat.deploy.preflight.checks import run_checks
    from qanat.deploy.preflight.host import ThisHost
    from qanat.deploy.preflight.report import text_report
    from qanat.deploy.preflight.result import has_failed
    from qanat.deploy.preflight.target import target_of
    from qanat.deploy.rendered.inputs import read_plan

    plan = read_plan(str(folder.path))
    is_well = True
    for node in nodes:
        results = run_checks(ThisHost(), target_of(plan, node.name))
        tell(text_report(results, f"This host as {node.name}"))
        is_well = is_well and not has_failed(results)
    if not is_well:
        tell("nothing was started; change what failed, or start it all the same with --skip-preflight")
    return is_well


async def _stop(session: Session, units: Sequence[Unit]) -> int:
    faults = await session.stop(units)
    for fault in faults:
        tell(fault)
    return FAILED if faults else 0


class _Run:
    """One run in the foreground: a task that signals can cancel, and the way back that they cannot."""

    def __init__(self, session: Session, folder: Folder, options: UpOptions) -> None:
        self._session = session
        self._folder = folder
        self._options = options
        self._signal: signal.Signals | None = None
        self._is_up = False
        self._is_stopping = False

    async def run(self) -> int:
        """Starts, verifies, watches, stops; returns the exit code."""
        task = asyncio.create_task(self._work())
        with _handling(lambda number: self._on_signal(number, task)):
            try:
                code = await task
            except asyncio.CancelledError:
                code = 0 if self._is_up else SIGNAL_EXIT_BASE + int(self._signal or signal.SIGINT)
            except Exception:  # whatever it is, nothing is left behind
                await self._way_back()
                raise
            else:
                if code == 0 or self._options.keep:
                    return code
            return await self._way_back() or code

    async def _way_back(self) -> int:
        self._is_stopping = True
        if not self._session.started:
            return 0
        tell("stopping what was started")
        return await _stop(self._session, self._session.started)

    def _on_signal(self, number: signal.Signals, task: asyncio.Task[int]) -> None:
        if self._is_stopping or self._signal is not None:
            tell("it is being stopped; wait a moment")
            return
        self._signal = number
        task.cancel()

    async def _work(self) -> int:
        from qanat.deploy.up.unit import ScriptError
        from qanat.deploy.up.waiting import UnitError

        session = self._session
        try:
            await session.start()
            if session.healthy == {unit.name for unit in session.units}:
                tell(
                    f"nothing to do; qanat deploy verify --plan {self._folder.path} asks it whether it works"
                )
                return 0
            if not await self._verified():
                tell("the verification failed")
                return FAILED
            if self._options.detach or not session.started:
                return 0
            self._is_up = True
            tell("it runs; Ctrl-C stops it")
            await session.watch()
        except ScriptError as error:
            tell(str(error))
            return FAILED
        except UnitError as error:
            _show_failure(error)
            return FAILED
        return 0

    async def _verified(self) -> bool:
        """Asks the service if clients reach it on this host; True if no check failed."""
        here = {unit.name for unit in self._session.engines}
        if self._options.skip_verify or self._folder.deployment.service.node not in here:
            return True
        from qanat.cli.connection import exchange_with
        from qanat.cli.deploy_actions.verify import DEFAULT_CONCURRENCY, MAX_CONCURRENCY, verify
        from qanat.deploy.plan.places import service_port
        from qanat.deploy.rendered.inputs import read_plan
        from qanat.deploy.verify.check import Context, Settings
        from qanat.deploy.verify.planned import expected_of
        from qanat.deploy.verify.report import has_failed
        from qanat.deploy.verify.run import chosen
        from qanat.deploy.verify.service import Service

        plan = read_plan(str(self._folder.path))
        planned = expected_of(plan)
        url = self._folder.url(self._folder.deployment.service.node, service_port(plan), "")
        settings = Settings(
            model=planned.model,
            max_model_len=planned.max_model_len,
            concurrency=min(planned.concurrency or DEFAULT_CONCURRENCY, MAX_CONCURRENCY),
        )
        exchange = exchange_with(url, self._options.api_key_env)
        context = Context(Service(exchange, settings.timeout_s), settings)
        return not has_failed(await verify(context, chosen()))


def _show_failure(error: UnitError) -> None:
    """What happened, the end of the log, and what is known of it."""
    from qanat.deploy.diagnose.diagnosis import diagnose_logs
    from qanat.deploy.diagnose.log_report import text_report
    from qanat.deploy.diagnose.log_source import source_of

    tell(str(error))
    if error.last_lines:
        tell("the end of its log:\n" + "\n".join(f"  {line}" for line in error.last_lines))
    with contextlib.suppress(ConfigError):  # there may be no log yet
        tell(text_report(diagnose_logs([source_of(str(error.unit.log))])))


@contextlib.contextmanager
def _handling(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Calls a function at signals that ask for an end; one that is ignored (nohup) stays so."""
    loop = asyncio.get_running_loop()
    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
