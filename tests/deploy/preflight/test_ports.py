from __future__ import annotations

import itertools
import socket
from typing import Any

import msgspec
import pytest

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.wish import Topology
from qanat.deploy.preflight import ports
from qanat.deploy.preflight.host import Output, ThisHost
from qanat.deploy.preflight.recording import RecordedHost, Recording
from qanat.deploy.preflight.result import Result, Status
from qanat.deploy.preflight.target import Target, target_of
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes

EMPTY = RecordedHost(Recording())
ROOMY = {"--port": 8000, "--data-parallel-rpc-port": 8100, "kv_port": 8200, "the proxy's port": 8300}
"""Ports that do not meet: kv_port takes 16."""


def changed(plan: Plan, node: str, proxy_port: int | None = None, **flags: Any) -> Target:
    nodes = tuple(
        msgspec.structs.replace(each, flags={**each.flags, **flags}) if each.name == node else each
        for each in plan.nodes
    )
    proxy = plan.proxy
    if proxy is not None and proxy_port is not None:
        proxy = msgspec.structs.replace(proxy, port=proxy_port)
    return target_of(msgspec.structs.replace(plan, nodes=nodes, proxy=proxy), node)


def with_all_ports(values: dict[str, int]) -> Target:
    """A prefill node that listens on every port that can be configured."""
    plan = disaggregated()
    transfer = {**plan.role("prefill").flags["kv-transfer-config"], "kv_port": values["kv_port"]}
    return changed(
        plan,
        "prefill-0",
        values["the proxy's port"],
        **{
            "port": values["--port"],
            "data-parallel-size": 2,
            "tensor-parallel-size": 8,
            "data-parallel-rpc-port": values["--data-parallel-rpc-port"],
            "kv-transfer-config": transfer,
        },
    )


def conflicts(target: Target) -> list[Result]:
    return [each for each in ports.check_conflicts(EMPTY, target) if each.status is Status.FAIL]


def test_all_ports_of_a_node() -> None:
    uses = {use.name: use.ports for use in ports.port_uses(with_all_ports(ROOMY))}
    assert uses == {
        "--port": range(8000, 8001),
        "--data-parallel-rpc-port": range(8100, 8101),
        "kv_port": range(8200, 8216),
        "HCCL": range(60000, 60016),
        "the transfer's random ports": range(20000, 36000),
        "the proxy's port": range(8300, 8301),
    }
    assert conflicts(with_all_ports(ROOMY)) == []


@pytest.mark.parametrize("pair", list(itertools.combinations(ROOMY, 2)), ids=" and ".join)
def test_ops_006_every_pair_of_equal_ports_is_refused_by_both_names(pair: tuple[str, str]) -> None:
    first, second = pair
    (result,) = conflicts(with_all_ports({**ROOMY, second: ROOMY[first]}))
    assert first in result.seen and second in result.seen


@pytest.mark.parametrize("name", ["--port", "--data-parallel-rpc-port", "the proxy's port"])
def test_ops_006_a_port_inside_a_range_is_refused(name: str) -> None:
    (result,) = conflicts(with_all_ports({**ROOMY, name: ROOMY["kv_port"] + 15}))
    assert name in result.seen and "kv_port 8200 to 8215" in result.seen
    (result,) = conflicts(with_all_ports({**ROOMY, name: 60015}))
    assert name in result.seen and "HCCL 60000 to 60015" in result.seen
    assert conflicts(with_all_ports({**ROOMY, name: 60016})) == []


def test_the_side_channel_in_the_random_range_is_refused_and_a_server_there_is_a_risk() -> None:
    (result,) = conflicts(with_all_ports({**ROOMY, "kv_port": 23010}))
    assert "random ports" in result.seen
    results = list(ports.check_conflicts(EMPTY, with_all_ports({**ROOMY, "--port": 30050})))
    assert [each.status for each in results] == [Status.WARN]


def test_variables_move_the_ranges_of_libraries() -> None:
    plan = disaggregated()
    node = msgspec.structs.replace(
        plan.nodes[0], env={"HCCL_IF_BASE_PORT": "50000", "ASCEND_BASE_PORT": "11000"}
    )
    plan = msgspec.structs.replace(plan, nodes=(node, plan.nodes[1]))
    uses = {use.name: use.ports for use in ports.port_uses(target_of(plan, "prefill-0"))}
    assert uses["HCCL_IF_BASE_PORT"] == range(50000, 50016) and "the transfer's random ports" not in uses


def test_further_nodes_listen_on_no_port_for_clients() -> None:
    assert [use.name for use in ports.port_uses(target_of(two_nodes(), "server-1"))] == ["HCCL"]


def test_a_port_that_there_is_not() -> None:
    (result,) = conflicts(with_all_ports({**ROOMY, "--port": 70000}))
    assert "from 1 to 65535" in result.seen


def free_port() -> tuple[socket.socket, int]:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    return server, server.getsockname()[1]


def test_ops_008_a_port_that_is_taken_is_found_before_anything_is_loaded() -> None:
    server, port = free_port()
    with server:
        server.listen()
        target = changed(single_node(), "server-0", host="127.0.0.1", port=port)
        use = ports.PortUse("--port", range(port, port + 1), "127.0.0.1")
        assert use in ports.port_uses(target)
        results = [each for each in ports.check_free(ThisHost(), target) if str(port) in each.seen]
    assert [each.status for each in results] == [Status.FAIL]
    assert "address already in use" in results[0].seen
    assert ThisHost().bind_error("127.0.0.1", 0) is None


def test_ops_008_the_holder_is_named_if_it_is_known() -> None:
    listening = 'LISTEN 0 128 0.0.0.0:8010 0.0.0.0:* users:(("python3",pid=4711,fd=3))\n'
    host = RecordedHost(
        Recording(
            taken={"0.0.0.0:8010": "address already in use"},
            commands={"ss -Hltnp": Output(text=listening)},
        )
    )
    (result,) = ports.check_free(host, target_of(single_node()))
    assert "by python3, process 4711" in result.seen


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("no such address on this host", Status.FAIL),
        ("not allowed for this user", Status.WARN),
        ("Too many open files", Status.FAIL),
    ],
)
def test_ops_008_other_reasons(reason: str, status: Status) -> None:
    host = RecordedHost(Recording(taken={"0.0.0.0:8010": reason}))
    (result,) = ports.check_free(host, target_of(single_node()))
    assert result.status is status and reason in result.seen


def test_ops_008_an_address_that_this_host_does_not_have_and_ipv6() -> None:
    assert ThisHost().bind_error("203.0.113.77", 0) == "no such address on this host"
    assert ThisHost().bind_error("127.0.0.1", 70000) == "no such port"
    if socket.has_ipv6:
        assert ThisHost().bind_error("::1", 0) in (None, "no such address on this host")


@pytest.mark.parametrize(
    ("reserved", "status"),
    [
        ("", Status.WARN),
        ("60000-60015", Status.OK),
        ("60000-60014,60015", Status.OK),
        ("60001-60015", Status.WARN),
    ],
)
def test_ports_that_the_kernel_gives_away(reserved: str, status: Status) -> None:
    files = {ports.RANGE_FILE: "32768\t60999\n", ports.RESERVED_FILE: f"{reserved}\n"}
    (result,) = ports.check_ephemeral(RecordedHost(Recording(files=files)), target_of(single_node()))
    assert result.status is status
    if status is Status.WARN:
        assert "60000-60015" in result.fix and (not reserved or reserved in result.fix)


def test_ray_has_a_port_on_the_first_node() -> None:
    plan = msgspec.structs.replace(two_nodes(), topology=Topology.RAY)
    names = [[use.name for use in ports.port_uses(target_of(plan, node.name))] for node in plan.nodes]
    assert "Ray's port" in names[0] and "Ray's port" not in names[1]


def test_further_nodes_that_answer_clients_too() -> None:
    plan = two_nodes()
    node = msgspec.structs.replace(plan.nodes[1], flags={"port": 8001, "data-parallel-hybrid-lb": True})
    plan = msgspec.structs.replace(plan, nodes=(plan.nodes[0], node))
    assert target_of(plan, "server-1").port == 8001
