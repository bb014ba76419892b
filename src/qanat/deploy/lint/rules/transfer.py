"""Disaggregated serving, seen from one server or proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.reading import as_integer
from qanat.deploy.lint.registry import Hit, on_document, on_server
from qanat.deploy.lint.view import TRANSFER, LaunchView
from qanat.deploy.sources.programs import ROUTER

RANDOM_PORTS_FROM = 20000
RANDOM_PORTS_PER_NPU = 1000
OWN_ROLE = {"kv_producer": "prefill", "kv_consumer": "decode"}
LAYERWISE_PROXY = "layerwise"
ABORT_TIMEOUT = "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT"
DEFAULT_ABORT_TIMEOUT_S = 480


@on_server("PD003", "PD020", "PD004", "PD010", "PD015", "PD024")
def connector(view: LaunchView) -> Iterator[Hit]:
    """Connector, role, port and identity."""
    node = view.key(TRANSFER, "kv_connector")
    if node is None:
        return
    if view.key(TRANSFER, "kv_role") is None:
        yield Hit("PD024", node.place, "kv_connector is given and kv_role is not")
    if view.connector is not None and view.connector.is_upstream:
        message = f"{node.value} is the name of upstream's connector for GPUs"
        yield from (Hit(rule, node.place, message) for rule in ("PD003", "PD020"))
    is_compressed = re.search(r"w\d+a\d+c8", (view.model_name or "").lower()) is not None
    if is_compressed and view.model is not None and view.connector is not None:
        if view.connector.direction == "pull":
            yield Hit("PD010", node.place, f"{node.value} cannot carry a cache of 8 bits")
    port = view.key(TRANSFER, "kv_port")
    number = as_integer(port) if port else None
    if port is not None and number is not None and view.variable("ASCEND_BASE_PORT") is None:
        npus = max(view.visible_npus or 0, view.num_local_ranks)
        npus = max(npus, view.chip.num_npus_per_node if view.chip else 8)
        end = RANDOM_PORTS_FROM + RANDOM_PORTS_PER_NPU * npus
        if RANDOM_PORTS_FROM <= number < end:
            message = (
                f"kv_port {number} lies in the random range {RANDOM_PORTS_FROM} to {end - 1} of {npus} NPUs"
            )
            yield Hit("PD004", port.place, message, f"{end} or above, such as {end + 10}")
    identity = view.key(TRANSFER, "engine_id")
    if identity is not None:
        yield Hit("PD015", identity.key_place or identity.place, "engine_id is made by the server")


@on_server("PD005", "PD006")
def sizes(view: LaunchView) -> Iterator[Hit]:
    """Sizes in the transfer configuration."""
    extra = view.key(TRANSFER, "kv_connector_extra_config")
    if extra is None:
        return
    prefill, decode = (extra.get(role, "tp_size") for role in ("prefill", "decode"))
    numbers = [as_integer(node) if node else None for node in (prefill, decode)]
    if prefill is not None and numbers[0] and numbers[1] and numbers[0] % numbers[1]:
        message = f"prefill has {numbers[0]}, which is no multiple of decode's {numbers[1]}"
        yield Hit("PD005", prefill.place, message)
    role = OWN_ROLE.get(view.kv_role or "")
    if role is None:
        return
    actual = {"tp_size": ("--tensor-parallel-size", view.tp), "dp_size": ("--data-parallel-size", view.dp)}
    for key, (flag, size) in actual.items():
        node = extra.get(role, key)
        stated = as_integer(node) if node else None
        is_flag_known = view.get(flag) is None or view.integer(flag) is not None
        if node is not None and stated is not None and stated != size and is_flag_known:
            yield Hit("PD006", node.place, f"{role}.{key} is {stated}, {flag} is {size}", f"{size}")


@on_server("PD007", "PD008", "PD009")
def schedulers(view: LaunchView) -> Iterator[Hit]:
    """Schedulers that only some roles have."""
    recompute = view.is_key_on("recompute_scheduler_enable") or view.is_key_on(
        "scheduler_config", "recompute_scheduler_enable"
    )
    if recompute is not None and recompute.is_on:
        if view.kv_role == "kv_producer":
            yield Hit("PD008", recompute.place, "the recompute scheduler is for decode nodes")
        elif view.kv_role != "kv_consumer" and not _has_unknown_role(view):
            yield Hit("PD007", recompute.place, "the recompute scheduler needs a KV connector")
    balance = view.is_key_on("enable_balance_scheduling") or view.is_key_on(
        "scheduler_config", "enable_balance_scheduling"
    )
    place = balance.place if balance and balance.is_on else None
    assignment = view.variable("VLLM_ASCEND_BALANCE_SCHEDULING")
    if place is None and assignment is not None and view.is_variable_on("VLLM_ASCEND_BALANCE_SCHEDULING"):
        place = assignment.place
    if place is not None and view.kv_role in OWN_ROLE:
        yield Hit("PD009", place, "balance scheduling does not go with a KV connector")


def _has_unknown_role(view: LaunchView) -> bool:
    return view.get(TRANSFER) is not None and (view.json(TRANSFER) is None or view.kv_role is None)


@on_server("PD016")
def patience(view: LaunchView) -> Iterator[Hit]:
    """How long a prefill node keeps a cache that nobody has fetched."""
    timeout = view.variable(ABORT_TIMEOUT)
    if view.kv_role != "kv_producer" or timeout is None or not timeout.value.text.isdigit():
        return
    seconds = int(timeout.value.text)
    if seconds < DEFAULT_ABORT_TIMEOUT_S:
        message = f"a cache that is not fetched within {seconds} s is freed; the default is {DEFAULT_ABORT_TIMEOUT_S}"
        yield Hit("PD016", timeout.place, message)


@on_server("PD018")
def eager_decode(view: LaunchView) -> Iterator[Hit]:
    """Decode nodes without graphs."""
    if view.kv_role == "kv_consumer" and view.switch("--enforce-eager"):
        yield Hit("PD018", view.place("--enforce-eager"), "the decode node runs without graphs")


@on_document("PD014", "PD023")
def proxies(view: DocumentView) -> Iterator[Hit]:
    """Flags of the example proxies and of `qanat router`, which takes one port for all hosts of a side."""
    for proxy in view.proxies():
        flags = {flag.name: flag for flag in proxy.launch.flags}
        host = flags.get("--host")
        if LAYERWISE_PROXY in proxy.launch.program and host and host.value:
            if host.value.text in ("0.0.0.0", "::", "[::]"):
                message = f"decode nodes cannot call back to {host.value.text}"
                yield Hit("PD014", host.value.place, message)
        for role in ("prefiller", "decoder"):
            hosts, ports = flags.get(f"--{role}-hosts"), flags.get(f"--{role}-ports")
            if hosts is None or ports is None:
                continue
            is_known = all(value.is_known or "xx" in value.text for value in (*hosts.values, *ports.values))
            is_for_all = proxy.launch.program == ROUTER and len(ports.values) == 1
            if is_known and not is_for_all and len(hosts.values) != len(ports.values):
                message = f"{len(hosts.values)} hosts and {len(ports.values)} ports of the {role} nodes"
                yield Hit("PD023", ports.place, message)
