"""`qanat deploy preflight`: a host, and the way to its peers, looked at before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qanat.cli.command import Command
from qanat.cli.reading import read_action, say, say_json
from qanat.cli.terminal import tell
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.preflight.host import Host
    from qanat.deploy.preflight.recording import RecordingHost
    from qanat.deploy.preflight.result import Result
    from qanat.deploy.preflight.target import Target

FAILED = 1
"""Exit code where something failed."""
DEFAULT_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class PreflightOptions:
    """Preflight."""

    node: str | None = option(
        Kind.TEXT, None, "Which node of the plan this host is. Default: the one whose address this host has."
    )
    image: str | None = option(
        Kind.TEXT,
        None,
        "Image, tag or version of vllm-ascend that is going to run. Default: that of the plan.",
    )
    model_path: str | None = option(
        Kind.TEXT, None, "Folder of the weights on this host. Default: that of the plan."
    )
    port: int | None = option(
        Kind.COUNT, None, "Port that clients talk to. Default: that of the plan.", minimum=1, maximum=65535
    )
    in_container: bool = option(
        Kind.SWITCH, False, "This runs inside the image: look at its CANN and packages, and import them."
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON.")
    record: str | None = option(
        Kind.TEXT,
        None,
        "Folder that gets host.yaml: all that was asked of this host, to be checked elsewhere.",
    )
    replay: str | None = option(Kind.TEXT, None, "Folder of --record to check instead of this host.")

    agent: bool = option(
        Kind.SWITCH,
        False,
        "Wait for one other node, compare both, and end. Prints the token that the other node needs.",
    )
    bind: str | None = option(
        Kind.TEXT,
        None,
        "Address, or ADDRESS:PORT, that --agent listens on. Default: the node's address in the plan.",
    )
    timeout: int = option(
        Kind.COUNT, DEFAULT_TIMEOUT_S, "Seconds after which --agent ends itself.", minimum=1, maximum=86400
    )
    any_address: bool = option(Kind.SWITCH, False, "Allow --bind 0.0.0.0, which listens on every interface.")
    peer: tuple[str, ...] = option(Kind.TEXTS, (), "ADDRESS:PORT of agents to compare this host with.")
    token: tuple[str, ...] = option(
        Kind.TEXTS, (), "Token that each agent printed, in the order of --peer.", is_secret=True
    )


COMMAND = Command(
    name="deploy preflight",
    summary="Check a host before a deployment is started on it.",
    description=(
        "Looks at the host it runs on: NPUs, driver and firmware, devices, interfaces and addresses, ports, links,\n"
        "memory, CPUs, kernel settings, clock, and the model folder, against a plan (plan.yaml or a rendered folder)\n"
        "or the flags. Nothing is changed. Without NPUs it says what it could not check.\n"
        "With --agent on one node and --peer on another, both ends compare each other.\n"
        "Exit codes: 0 nothing failed, 1 something failed, 2 the command line is at fault."
    ),
    examples=(
        "qanat deploy preflight plan.yaml --node server-0",
        "qanat deploy preflight --image v0.23.0-a3 --model-path /data/Qwen3.5-35B-A3B-w8a8 --port 8000",
        "qanat deploy preflight plan.yaml --node decode-0 --agent --bind 10.0.0.2",
        "qanat deploy preflight plan.yaml --node prefill-0 --peer 10.0.0.2:18321 --token TOKEN",
    ),
    groups=(),
    own=PreflightOptions,
    word="PLAN.yaml|FOLDER",
    word_help="A plan, or the folder that was rendered from it.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy preflight`; returns the exit code.

    Raises:
        ConfigError: a plan that is none, a node it does not have, or flags that exclude each other.
    """
    options, words = read_action(COMMAND, PreflightOptions, arguments)
    _check_flags(options, words)
    from qanat.deploy.preflight.checks import run_checks
    from qanat.deploy.preflight.network import own_addresses
    from qanat.deploy.preflight.recording import RecordingHost
    from qanat.deploy.preflight.target import target_of
    from qanat.deploy.rendered.inputs import is_from_source, read_plan

    plan = read_plan(words[0]) if words else None
    host = RecordingHost(_host(options))
    target = target_of(
        plan,
        options.node,
        own_addresses=own_addresses(host) if plan and options.node is None else (),
        image=options.image,
        model_path=options.model_path,
        port=options.port,
        is_in_container=options.in_container,
        is_from_source=bool(words) and is_from_source(words[0]),
    )
    results: tuple[Result, ...]
    if options.agent or options.peer:
        results = _compare(options, host, target)
    else:
        results = run_checks(host, target)
    if options.record:
        _write_recording(host, options.record)
    return _report(options, host, target, results)


def _check_flags(options: PreflightOptions, words: Sequence[str]) -> None:
    if len(words) > 1:
        raise ConfigError(f"one plan or folder can be named, got {' and '.join(words)}.")
    if options.agent and options.peer:
        raise ConfigError("--agent waits for a peer, --peer goes to one; leave one out.", param="--peer")
    if (options.agent or options.peer) and not words:
        raise ConfigError("--agent and --peer compare nodes of a plan; name the plan.")
    if (options.agent or options.peer) and options.replay:
        raise ConfigError("--replay is for checks without other nodes.", param="--replay")
    if len(options.peer) != len(options.token):
        raise ConfigError(
            f"{len(options.peer)} --peer and {len(options.token)} --token; each agent printed a token of its own.",
            param="--token",
        )
    if options.bind and not options.agent:
        raise ConfigError("--bind says where --agent listens.", param="--bind")


def _host(options: PreflightOptions) -> Host:
    from qanat.deploy.preflight.host import ThisHost
    from qanat.deploy.preflight.recording import FILE_NAME, RecordedHost, decode_recording
    from qanat.deploy.text_files import read_text

    if options.replay is None:
        return ThisHost()
    path = Path(options.replay) / FILE_NAME
    return RecordedHost(decode_recording(read_text(path, "--replay"), str(path)))


def _compare(options: PreflightOptions, host: Host, target: Target) -> tuple[Result, ...]:
    """Waits for another node, or goes to others."""
    from qanat.deploy.preflight.agent import listen, serve, visit
    from qanat.deploy.preflight.peer_facts import own_facts

    if options.agent:
        bind = options.bind or (target.node.address if target.node else "")
        if not bind:
            raise ConfigError(
                "the plan has no address for this node; say with --bind ADDRESS where to listen.",
                param="--bind",
            )
        server = listen(bind, is_any_allowed=options.any_address)
        return serve(server, host, target, options.timeout, lambda *each: _announce(options, target, *each))
    own = own_facts(host, target)
    pairs = zip(options.peer, options.token, strict=True)
    return tuple(result for address, token in pairs for result in visit(address, token, host, own))


def _announce(options: PreflightOptions, target: Target, address: str, token: str) -> None:
    """Says what the other node needs; to the person, as the result is yet to come."""
    name = target.node.name if target.node else "this node"
    everywhere, _, port = address.rpartition(":")
    if everywhere in ("0.0.0.0", "[::]"):
        address = f"{target.node.address if target.node and target.node.address else 'ADDRESS'}:{port}"
    tell(f"{name} waits on {address} for {options.timeout} s. On another node of the plan:")
    tell(f"  qanat deploy preflight PLAN --node NODE --peer {address} --token {token}")


def _write_recording(host: RecordingHost, folder: str) -> None:
    from qanat.deploy.preflight.recording import FILE_NAME, encode_recording

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / FILE_NAME).write_text(encode_recording(host.recording), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--record {folder}: {error.strerror or error}", param="--record") from None
    tell(f"recorded: {Path(folder) / FILE_NAME}")


def _report(options: PreflightOptions, host: Host, target: Target, results: Sequence[Result]) -> int:
    from qanat.deploy.preflight.report import json_report, text_report
    from qanat.deploy.preflight.result import has_failed

    node = target.node.name if target.node else ""
    if options.json:
        say_json(json_report(results, node, host.host_name()))
    else:
        say(text_report(results, _heading(host, target)))
    return FAILED if has_failed(results) else 0


def _heading(host: Host, target: Target) -> str:
    what = f"Host {host.host_name()}"
    if target.plan is not None and target.node is not None:
        what += f" as {target.node.name} of {target.plan.model} {target.plan.weights} on {target.plan.chip}"
    return what + (f", {target.image}" if target.image else "")
