"""Prefill against decode against proxy, in one file or across files."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.knowledge.kinds.settings import Connector
from qanat.deploy.lint.files import FileSet
from qanat.deploy.lint.reading import as_integer, read_integer
from qanat.deploy.lint.registry import Hit, on_files
from qanat.deploy.lint.view import SPECULATIVE, TRANSFER, LaunchView
from qanat.deploy.sources.launch import Flag
from qanat.deploy.sources.programs import ROUTER
from qanat.deploy.sources.values import Place, Source

PAIRED = ("--prefiller-hosts", "--decoder-hosts")
DEFAULT_DIRECTION = "pull"
"""--connector of `qanat router` where it is not given."""
TIMEOUTS = ("HCCL_EXEC_TIMEOUT", "HCCL_CONNECT_TIMEOUT")


def pairs(files: FileSet) -> Iterator[tuple[LaunchView, LaunchView]]:
    """A prefill and a decode node that belong together.

    In one file a decode node belongs to the last prefill node before it; elsewhere to the only one in its folder, or
    the only one there is.
    """
    producers = [view for view in files.servers if view.kv_role == "kv_producer"]
    by_file: dict[str, list[LaunchView]] = {}
    for producer in producers:
        by_file.setdefault(producer.document.path, []).append(producer)
    for consumer in files.servers:
        if consumer.kv_role != "kv_consumer":
            continue
        here = by_file.get(consumer.document.path, [])
        before = [view for view in here if view.launch.place.start < consumer.launch.place.start]
        chosen = before[-1:] or here[:1] or files.near(consumer.document, producers)
        if len(chosen) == 1:
            yield chosen[0], consumer


@on_files("HYB006", "PD005", "PD006", "PD011", "PD019", "PD021")
def roles(files: FileSet) -> Iterator[Hit]:
    """What both sides must have alike."""
    for producer, consumer in pairs(files):
        yield from _speculation(producer, consumer)
        yield from _timeouts(producer, consumer)
        yield from _limits(producer, consumer)
        yield from _sizes(producer, consumer)


def _speculation(producer: LaunchView, consumer: LaunchView) -> Iterator[Hit]:
    drafts = producer.num_draft_tokens, consumer.num_draft_tokens
    is_hybrid = consumer.model is not None and consumer.model.is_hybrid
    if not is_hybrid or drafts[0] == drafts[1]:
        return
    node = producer.key(SPECULATIVE, "num_speculative_tokens")
    place = node.place if node else producer.launch.place
    message = f"{drafts[0]} speculative tokens here, {drafts[1]} on the decode node ({_at(consumer)})"
    yield Hit("HYB006", place, message)


def _timeouts(producer: LaunchView, consumer: LaunchView) -> Iterator[Hit]:
    for name in TIMEOUTS:
        here, there = producer.variable(name), consumer.variable(name)
        if here is not None and there is not None and here.value.text != there.value.text:
            if here.value.is_known and there.value.is_known:
                message = f"{name} is {here.value.text} here, {there.value.text} on the decode node"
                yield Hit("PD011", here.place, f"{message} ({there.place.path}:{there.place.line})")


def _limits(producer: LaunchView, consumer: LaunchView) -> Iterator[Hit]:
    windows = producer.integer("--max-model-len"), consumer.integer("--max-model-len")
    if windows[0] and windows[1] and windows[0] != windows[1]:
        message = f"--max-model-len is {windows[0]} here, {windows[1]} on the decode node ({_at(consumer)})"
        yield Hit("PD019", producer.place("--max-model-len"), message)
    node, other = (view.key(TRANSFER, "kv_connector") for view in (producer, consumer))
    is_plain = not any(
        view.connector is None or view.connector.direction == "both" for view in (producer, consumer)
    )
    if node is not None and other is not None and node.value != other.value and is_plain:
        message = f"{node.value} here, {other.value} on the decode node ({_at(consumer)})"
        yield Hit("PD021", node.place, message)
    models = producer.model_name, consumer.model_name
    if (
        models[0]
        and models[1]
        and models[0].rstrip("/").split("/")[-1] != models[1].rstrip("/").split("/")[-1]
    ):
        message = f"{models[0]} here, {models[1]} on the decode node ({_at(consumer)})"
        yield Hit("PD021", producer.launch.place, message)


def _sizes(producer: LaunchView, consumer: LaunchView) -> Iterator[Hit]:
    extra = [view.key(TRANSFER, "kv_connector_extra_config") for view in (producer, consumer)]
    if extra[0] is None or extra[1] is None:
        if producer.tp % consumer.tp:
            message = f"{producer.tp} here is no multiple of {consumer.tp} on the decode node"
            yield Hit("PD005", producer.place("--tensor-parallel-size"), f"{message} ({_at(consumer)})")
        return
    for role in ("prefill", "decode"):
        for key in ("tp_size", "dp_size"):
            here, there = extra[0].get(role, key), extra[1].get(role, key)
            numbers = [as_integer(node) if node else None for node in (here, there)]
            if here is not None and None not in numbers and numbers[0] != numbers[1]:
                message = f"{role}.{key} is {numbers[0]} here, {numbers[1]} on the decode node"
                yield Hit("PD006", here.place, f"{message} ({_at(consumer)})")


def _at(view: LaunchView) -> str:
    return f"{view.launch.place.path}:{view.launch.place.line}"


@on_files("PD001", "PD002", "PD022")
def proxies(files: FileSet) -> Iterator[Hit]:
    """Whether a proxy speaks the protocol of the servers behind it, and finds them."""
    index = [view for view in files.servers if view.kv_role]
    for document in files.documents:
        for proxy in document.proxies():
            servers = files.near(proxy.document, index)
            behind = _behind(proxy, servers)
            yield from _protocol(proxy, behind)
            yield from _targets(proxy, servers)


def own_ports(proxy: LaunchView) -> list[tuple[Flag, int]]:
    """The ports that a proxy is given for prefill and decode nodes, each with its flag."""
    found = []
    for flag in proxy.launch.flags:
        if flag.name in ("--prefiller-ports", "--decoder-ports"):
            numbers = [read_integer(value.text) for value in flag.values]
            found += [(flag, number) for number in numbers if number is not None]
    return found


def _behind(proxy: LaunchView, servers: list[LaunchView]) -> list[LaunchView]:
    """The servers of a proxy: on its ports; of several groups on the same ports those for the same chip."""
    ports = {port for _, port in own_ports(proxy)}
    found = [view for view in servers if view.integer("--port") in ports]
    found = found or ([] if ports else servers)
    if len({view.connector.name for view in found if view.connector}) > 1 and proxy.chip is not None:
        found = [view for view in found if view.chip == proxy.chip]
    return found


def _protocol(proxy: LaunchView, behind: list[LaunchView]) -> Iterator[Hit]:
    connectors = {view.connector.name: view.connector for view in behind if view.connector}
    if proxy.launch.program == ROUTER:
        yield from _direction(proxy, connectors)
        return
    fitting = {connector.proxy for connector in connectors.values() if connector.proxy}
    known = {entry.proxy for entry in proxy.knowledge.connectors.entries.values() if entry.proxy is not None}
    name = proxy.launch.program.rsplit("/", 1)[-1]
    if name not in known or len(fitting) != 1 or name in fitting:
        return
    right = next(iter(fitting))
    rule = "PD001" if "layerwise" in right else "PD002"
    listed = ", ".join(sorted(connectors))
    yield Hit(rule, _program_place(proxy), f"{name} does not speak the protocol of {listed}", f"use {right}")


def _direction(proxy: LaunchView, connectors: dict[str, Connector]) -> Iterator[Hit]:
    """Whether `qanat router`, which speaks both protocols, is told the right one where it is given both sides."""
    if not any(word in PAIRED or "role=" in word for word in (value.text for value in proxy.launch.argv)):
        return
    directions = {one.direction for one in connectors.values() if one.proxy is not None}
    flag = proxy.launch.flag("--connector")
    if len(directions) != 1 or (flag is not None and (flag.value is None or not flag.value.is_known)):
        return
    right = next(iter(directions))
    given = flag.value.text if flag is not None and flag.value is not None else DEFAULT_DIRECTION
    if given == right:
        return
    what = f"--connector {given}" if flag is not None else f"{ROUTER} without --connector"
    place = flag.place if flag is not None else _program_place(proxy)
    message = f"{what} does not speak the protocol of {', '.join(sorted(connectors))}"
    yield Hit("PD001" if right == "push" else "PD002", place, message, f"use --connector {right}")


def _program_place(proxy: LaunchView) -> Place:
    at = proxy.document.text.find(proxy.launch.program, proxy.launch.place.start, proxy.launch.place.end)
    if at < 0:
        return proxy.launch.place
    source = Source(proxy.document.path, proxy.document.text)
    return source.place(at, at + len(proxy.launch.program))


def _targets(proxy: LaunchView, servers: list[LaunchView]) -> Iterator[Hit]:
    roles = {"--prefiller-ports": "kv_producer", "--decoder-ports": "kv_consumer"}
    for flag, port in own_ports(proxy):
        side = [view for view in servers if view.kv_role == roles[flag.name]]
        ports = {view.integer("--port") for view in side}
        if side and None not in ports and port not in ports:
            listed = ", ".join(str(one) for one in sorted(one for one in ports if one is not None))
            yield Hit("PD022", flag.place, f"no such server listens on {port}; they use {listed}")
