"""Nodes of one data parallel group, and clients of the servers in the same files."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.lint.files import DocumentView, FileSet
from qanat.deploy.lint.registry import Hit, on_document, on_files
from qanat.deploy.lint.rules.service import outside_balancing
from qanat.deploy.lint.view import COMPILATION, SPECULATIVE, LaunchView
from qanat.deploy.node_settings import ADDRESS_VARIABLES, INTERFACE_VARIABLES

DEFAULT_RPC_PORT = 29550
ALIKE = (
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--quantization",
    "--block-size",
    "--enable-expert-parallel",
)
ALIKE_VARIABLES = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_OP_EXPANSION_MODE", "HCCL_BUFFSIZE")
"""Variables whose values belong alike on every node."""
ALIKE_JSON = (SPECULATIVE, COMPILATION)


def groups(files: FileSet) -> list[list[LaunchView]]:
    """Servers that form data parallel groups: a first node begins one, further nodes follow it."""
    members = [view for view in files.servers if view.launch.role in ("head", "worker") or _is_spread(view)]
    found: list[list[LaunchView]] = []
    for circle in files.circles(members):
        for role in dict.fromkeys(view.kv_role for view in circle):
            found += _split([view for view in circle if view.kv_role == role])
    return [group for group in found if len(group) > 1]


def _split(circle: list[LaunchView]) -> list[list[LaunchView]]:
    heads = [view for view in circle if _start(view) == 0 and not view.switch("--headless")]
    if len(heads) <= 1:
        return [circle]
    found: list[list[LaunchView]] = []
    for view in circle:
        if view in heads or not found:
            found.append([view])
        else:
            found[-1].append(view)
    return found


def _is_spread(view: LaunchView) -> bool:
    return view.dp > 1 and view.get("--data-parallel-size-local") is not None and view.dp_local < view.dp


def _start(view: LaunchView) -> int | None:
    """The first rank of a node; None if a variable holds it."""
    for flag in ("--data-parallel-start-rank", "--node-rank"):
        if view.get(flag) is not None:
            return view.integer(flag)
    return 0


@on_files("TOP003", "TOP008", "TOP012")
def nodes(files: FileSet) -> Iterator[Hit]:
    """All nodes of one group."""
    for group in groups(files):
        first = group[0]
        for view in group[1:]:
            yield from _control_plane(first, view)
            yield from _settings(first, view)
            yield from _variables(first, view)
        yield from _ranks(group)


def _control_plane(first: LaunchView, view: LaunchView) -> Iterator[Hit]:
    at = f"{first.launch.place.path}:{first.launch.place.line}"
    for flag in ("--data-parallel-size", "--data-parallel-rpc-port"):
        default = DEFAULT_RPC_PORT if flag.endswith("port") else 1
        numbers = [one.integer(flag) if one.get(flag) else default for one in (first, view)]
        if None not in numbers and numbers[0] != numbers[1]:
            message = f"{flag} is {numbers[1]} here, {numbers[0]} on the first node ({at})"
            yield Hit("TOP003", view.place(flag), message)
    addresses = first.text("--data-parallel-address"), view.text("--data-parallel-address")
    if addresses[0] and addresses[1] and addresses[0] != addresses[1]:
        message = f"--data-parallel-address is {addresses[1]} here, {addresses[0]} on the first node ({at})"
        yield Hit("TOP003", view.place("--data-parallel-address"), message)
    is_balanced = outside_balancing(view) is not None
    first_balanced = outside_balancing(first)
    if first_balanced is not None and not is_balanced and view.switch("--headless"):
        message = f"a headless node behind a first one with {first_balanced} ({at})"
        yield Hit("TOP012", view.place("--headless"), message)
    if view.dp > 1 and _start(view) != 0 and not view.switch("--headless") and not is_balanced:
        yield Hit("TOP003", view.place("--data-parallel-start-rank"), "a further node lacks --headless")


def _ranks(group: list[LaunchView]) -> Iterator[Hit]:
    if any(view.integer("--data-parallel-size-local") is None or _start(view) is None for view in group):
        return
    taken: dict[int, LaunchView] = {}
    for view in group:
        start = _start(view) or 0
        for rank in range(start, start + view.dp_local):
            if rank in taken:
                other = taken[rank].launch.place
                place = view.place("--data-parallel-start-rank", "--data-parallel-size-local")
                yield Hit("TOP003", place, f"rank {rank} is taken in {other.path}:{other.line}")
                return
            taken[rank] = view
    # A guide may show two nodes of four and leave the others to the reader.
    is_complete = all(view.document.kind != "guide" for view in group)
    size = group[0].integer("--data-parallel-size")
    if size is not None and (len(taken) > size or (is_complete and len(taken) < size)):
        place = group[0].place("--data-parallel-size-local", "--data-parallel-size")
        message = f"the nodes have {len(taken)} ranks together, --data-parallel-size is {size}"
        yield Hit("TOP003", place, message)


def _settings(first: LaunchView, view: LaunchView) -> Iterator[Hit]:
    for flag in ALIKE:
        here, there = view.value(flag), first.value(flag)
        if any(value is not None and not value.is_known for value in (here, there)):
            continue
        is_switch = flag == "--enable-expert-parallel"
        states = [view.switch(flag), first.switch(flag)] if is_switch else []
        if (is_switch and bool(states[0]) != bool(states[1])) or (
            not is_switch and (here.text if here else None) != (there.text if there else None)
        ):
            yield Hit("TOP008", view.place(flag), f"{flag} is not the same as on the first node")
    for flag in ALIKE_JSON:
        nodes_json = [one.json(flag) for one in (view, first)]
        if [node.value if node else None for node in nodes_json][0] != (
            nodes_json[1].value if nodes_json[1] else None
        ):
            yield Hit("TOP008", view.place(flag), f"{flag} is not the same as on the first node")
    if (view.model_name or "") != (first.model_name or ""):
        yield Hit(
            "TOP008", view.launch.place, f"{view.model_name} here, {first.model_name} on the first node"
        )


def _variables(first: LaunchView, view: LaunchView) -> Iterator[Hit]:
    at = f"{first.launch.place.path}:{first.launch.place.line}"
    for name in ALIKE_VARIABLES:
        here, there = view.variable(name), first.variable(name)
        if here is None or there is None or not (here.value.is_known and there.value.is_known):
            continue
        if here.value.text != there.value.text:
            message = f"{name} is {here.value.text} here, {there.value.text} on the first node ({at})"
            yield Hit("TOP008", here.place, message)
    for name in (*INTERFACE_VARIABLES, *ADDRESS_VARIABLES):  # every node has its own value, or none
        here, there = view.variable(name), first.variable(name)
        if (here is None) is not (there is None):
            given = here if here is not None else there
            where = (
                "the first node" if here is not None else f"{view.launch.place.path}:{view.launch.place.line}"
            )
            if given is not None:
                yield Hit("TOP008", given.place, f"{name} is set here and not on {where}")


@on_document("TOP003")
def local_size(view: DocumentView) -> Iterator[Hit]:
    """More local ranks than there are."""
    for server in view.servers():
        local = server.integer("--data-parallel-size-local")
        if local is not None and local > server.dp:
            message = f"--data-parallel-size-local {local} exceeds --data-parallel-size {server.dp}"
            yield Hit("TOP003", server.place("--data-parallel-size-local"), message)


@on_document("SRV001", "MEM009")
def clients(view: DocumentView) -> Iterator[Hit]:
    """Benchmarks and evaluations of the servers in the same file."""
    names: set[str] = set()
    for server in view.servers():
        served = server.get("--served-model-name")
        words = served.flag.values if served else ()
        if any(not word.is_known for word in words):
            return
        names |= {word.text for word in words} or {server.model_name or ""}
    capacity = sum((server.integer("--max-num-seqs") or 256) * server.dp for server in view.servers())
    for client in view.launches:
        if not names or client.launch.program != "vllm bench serve":
            continue
        flag = "--served-model-name" if client.value("serve --served-model-name") else "--model"
        value = client.value(f"serve {flag}")
        if value is not None and value.is_known and value.text not in names:
            listed = ", ".join(sorted(names))
            yield Hit("SRV001", value.place, f"no server here is called {value.text}; they serve {listed}")
        concurrency = client.integer("serve --max-concurrency")
        if concurrency is not None and concurrency > capacity:
            place = client.place("serve --max-concurrency")
            yield Hit("MEM009", place, f"{concurrency} clients, the servers run {capacity} sequences")
