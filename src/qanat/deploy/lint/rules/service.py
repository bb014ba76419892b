"""Memory, scheduling, parallelism and ports of one server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.reading import as_integer
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import SPECULATIVE, TRANSFER, LaunchView
from qanat.deploy.sources.values import Place

LARGE_STEP = 32768
HCCL_PORTS = range(60000, 60016)
ASYNC_METHODS = ("ngram", "suffix", "medusa", "mlp_speculator")
COUNTS_FROM_ONE = must_parse("0.13.0")


@on_server("MEM003", "MEM005", "MEM006", "MEM007", "SCH003")
def steps(view: LaunchView) -> Iterator[Hit]:
    """Tokens of a step against sequences and context."""
    tokens, window = view.max_num_batched_tokens, view.integer("--max-model-len")
    num_seqs = view.integer("--max-num-seqs")
    if tokens is None:
        return
    place, rows = view.place("--max-num-batched-tokens"), 1 + view.num_draft_tokens
    if num_seqs is not None and tokens < num_seqs:
        yield Hit("MEM006", place, f"{tokens} tokens for {num_seqs} sequences")
    elif num_seqs is not None and view.kv_role == "kv_consumer" and tokens < num_seqs * rows:
        message = f"{num_seqs} sequences of {rows} tokens need {num_seqs * rows}, a step has {tokens}"
        yield Hit("MEM005", place, message, f"--max-num-batched-tokens {num_seqs * rows}")
    if window is None:
        return
    if view.switch("--enable-chunked-prefill") is False and tokens < window:
        yield Hit("MEM007", place, f"{tokens} tokens do not hold a prompt of {window}")
    if tokens > LARGE_STEP and tokens > 2 * window:
        yield Hit("MEM003", place, f"steps of {tokens} tokens for a context of {window}")
    elif num_seqs is not None and tokens > num_seqs * window:
        message = f"{num_seqs} sequences of {window} tokens never fill {tokens}"
        yield Hit("SCH003", place, message)


@on_server("SCH001", "SCH002")
def asynchronous(view: LaunchView) -> Iterator[Hit]:
    """What asynchronous scheduling does not go with."""
    if not view.switch("--async-scheduling"):
        return
    place = view.place("--async-scheduling")
    if view.text("--distributed-executor-backend") == "ray":
        yield Hit("SCH001", place, "the ray executor cannot schedule asynchronously")
    if view.method in ASYNC_METHODS:
        yield Hit("SCH002", place, f"{view.method} speculation cannot be scheduled asynchronously")


@on_server("TOP001", "TOP004", "TOP005", "TOP006", "TOP009")
def ranks(view: LaunchView) -> Iterator[Hit]:
    """Parallel sizes of one node."""
    place = view.place("--tensor-parallel-size", "--data-parallel-size")
    visible = view.visible_npus
    ranks_here = view.num_local_ranks
    is_ray = view.text("--distributed-executor-backend") == "ray"
    if visible is not None and ranks_here > visible and not is_ray:
        yield Hit("TOP001", place, f"{ranks_here} ranks, {visible} visible NPUs")
    elif visible is None and view.chip is not None and not is_ray and view.get("--nnodes") is None:
        if ranks_here > view.chip.num_npus_per_node:
            message = f"{ranks_here} ranks, a node of {view.chip.name} has {view.chip.num_npus_per_node} NPUs"
            yield Hit("TOP001", place, message)
    servers = view.integer("--api-server-count")
    if view.switch("--headless") and servers is not None:
        if servers > (0 if view.version >= COUNTS_FROM_ONE else 1):
            message = "a headless node has no API servers"
            yield Hit("TOP004", view.place("--api-server-count"), message)
    if view.switch("--headless") and view.integer("--data-parallel-size-local") == 0:
        yield Hit("TOP009", view.place("--data-parallel-size-local"), "a headless node needs ranks")
    context = view.integer("--prefill-context-parallel-size") or 1
    if context > 1 and view.dp > 1:
        place = view.place("--prefill-context-parallel-size")
        yield Hit("TOP005", place, f"prefill context parallel {context} with data parallel {view.dp}")
    if view.pp > 1 and "mtp" in (view.method or "") and view.kv_role != "kv_producer":
        yield Hit("TOP006", view.place(SPECULATIVE), f"MTP with pipeline parallel size {view.pp}")


@on_server("TOP010")
def visible(view: LaunchView) -> Iterator[Hit]:
    """The order of the NPUs that a server sees."""
    stated = view.variable("ASCEND_RT_VISIBLE_DEVICES")
    if stated is None or not re.fullmatch(r"\d+(,\d+)*", stated.value.text):
        return
    numbers = [int(number) for number in stated.value.text.split(",")]
    if sorted(set(numbers)) != numbers:
        fix = ",".join(map(str, sorted(set(numbers))))
        yield Hit("TOP010", stated.place, f"{stated.value.text} is not in ascending order", fix)


@on_server("TOP011", "TOP012")
def headless(view: LaunchView) -> Iterator[Hit]:
    """What a headless node does not go with."""
    if not view.switch("--headless"):
        return
    if "api_server" in view.launch.program:
        yield Hit("TOP011", view.place("--headless"), f"{view.launch.program} does not look at --headless")
    balanced = outside_balancing(view)
    if balanced is not None:
        yield Hit("TOP012", view.place(balanced), f"{balanced} on a headless node")


def outside_balancing(view: LaunchView) -> str | None:
    """The flag by which requests are spread over nodes from outside; None if the first node does it."""
    for flag in ("--data-parallel-hybrid-lb", "--data-parallel-external-lb"):
        if view.switch(flag):
            return flag
    return "--data-parallel-rank" if view.get("--data-parallel-rank") is not None else None


def port_ranges(view: LaunchView) -> list[tuple[str, range, Place]]:
    """The ports a server listens on, with what they are for."""
    found: list[tuple[str, range, Place]] = []
    flags = ["--port", "--master-port"]
    if view.dp > 1 or view.get("--data-parallel-rpc-port"):
        flags.append("--data-parallel-rpc-port")
    for flag in flags:
        port = view.integer(flag)
        if port is not None:
            found.append((flag, range(port, port + 1), view.place(flag)))
    node = view.key(TRANSFER, "kv_port")
    base = as_integer(node) if node else None
    if node is not None and base is not None:
        found.append(("kv_port", range(base, base + max(1, view.dp * view.tp * view.pp)), node.place))
    return found


@on_server("PORT001", "PORT002")
def ports(view: LaunchView) -> Iterator[Hit]:
    """Ports among each other and against HCCL's."""
    found = port_ranges(view)
    for index, (name, used, place) in enumerate(found):
        for other, taken, _ in found[:index]:
            if max(used.start, taken.start) < min(used.stop, taken.stop):
                message = f"{name} uses {ports_in_words(used)}, {other} uses {ports_in_words(taken)}"
                yield Hit("PORT001", place, message)
        if max(used.start, HCCL_PORTS.start) < min(used.stop, HCCL_PORTS.stop):
            if view.variable("HCCL_IF_BASE_PORT") is None:
                yield Hit(
                    "PORT002", place, f"{name} uses {ports_in_words(used)}; HCCL listens on 60000 to 60015"
                )


def ports_in_words(ports: range) -> str:
    """A port, or the first and the last of a range."""
    return str(ports.start) if len(ports) == 1 else f"{ports.start} to {ports.stop - 1}"
