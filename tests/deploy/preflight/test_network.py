from __future__ import annotations

import json

import msgspec
import pytest

from qanat.deploy.preflight import network
from qanat.deploy.preflight.host import Output
from qanat.deploy.preflight.recording import RecordedHost, Recording
from qanat.deploy.preflight.result import Result, Status
from qanat.deploy.preflight.target import Target, target_of
from qanat.deploy.rendered.inputs import with_edits
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes

UP = ["BROADCAST", "UP", "LOWER_UP"]


def host(**extra: object) -> RecordedHost:
    """A host with eth0 (192.0.2.1), eth1 (down), eth2 without carrier, ib0 without address."""
    rows = [
        {"ifname": "lo", "flags": ["LOOPBACK", "UP", "LOWER_UP"], "addr_info": [{"local": "127.0.0.1"}]},
        {"ifname": "eth0", "flags": UP, "addr_info": [{"local": "192.0.2.1"}, {"local": "2001:db8::1"}]},
        {"ifname": "eth1", "flags": ["BROADCAST"], "addr_info": [{"local": "192.0.2.9"}]},
        {"ifname": "eth2", "flags": ["BROADCAST", "UP"], "addr_info": []},
        {"ifname": "ib0", "flags": UP, "addr_info": []},
    ]
    recording = Recording(name="node", commands={"ip -j addr": Output(text=json.dumps(rows))})
    return RecordedHost(msgspec.structs.replace(recording, **extra))


def group(address: str, interface: str, **values: str) -> Target:
    """The first of two nodes of one data parallel group."""
    edits = {"ADDRESS_SERVER_0": address, "INTERFACE_SERVER_0": interface, "ADDRESS_SERVER_1": "192.0.2.7"}
    return target_of(with_edits(two_nodes(), {**edits, **values}), "server-0")


def statuses(results: list[Result]) -> list[Status]:
    return [result.status for result in results]


def test_interface_and_address_that_fit() -> None:
    target = group("192.0.2.1", "eth0")
    assert statuses(list(network.check_interfaces(host(), target))) == [Status.OK]
    assert statuses(list(network.check_addresses(host(), target))) == [Status.OK]
    assert statuses(list(network.check_loopback(host(), target))) == [Status.OK]


@pytest.mark.parametrize(
    ("interface", "seen"),
    [
        ("eth7", "eth7; this host has eth0"),
        ("eth1", "eth1 is down"),
        ("eth2", "no carrier"),
        ("ib0", "no address"),
    ],
)
def test_ops_018_an_interface_that_is_not_there_or_not_up(interface: str, seen: str) -> None:
    (result,) = network.check_interfaces(host(), group("192.0.2.1", interface))
    assert result.status is Status.FAIL and seen in result.seen


def test_ops_018_an_address_of_another_host() -> None:
    results = list(network.check_addresses(host(), group("192.0.2.77", "eth0")))
    assert statuses(results) == [Status.FAIL] and "this host has 192.0.2.1" in results[0].seen


def test_ops_018_an_address_on_another_interface() -> None:
    (result,) = network.check_addresses(host(), group("192.0.2.9", "eth0"))
    assert result.status is Status.FAIL and "on eth1" in result.seen and "is eth0" in result.seen


@pytest.mark.parametrize(
    ("address", "interface"), [("127.0.0.1", "eth0"), ("192.0.2.1", "lo"), ("::1", "eth0")]
)
def test_ops_018_loopback_is_refused_for_several_nodes(address: str, interface: str) -> None:
    results = list(network.check_loopback(host(), group(address, interface)))
    assert results and set(statuses(results)) == {Status.FAIL}


def test_ops_018_loopback_of_the_other_node_is_told_too() -> None:
    results = list(network.check_loopback(host(), group("192.0.2.1", "eth0", ADDRESS_SERVER_1="127.0.0.2")))
    assert statuses(results) == [Status.FAIL] and "server-1" in results[0].seen


def test_loopback_is_fine_on_a_single_node() -> None:
    plan = with_edits(single_node(), {"ADDRESS_SERVER_0": "127.0.0.1"})
    assert list(network.check_loopback(host(), target_of(plan))) == []


def test_nothing_named_for_several_nodes_is_a_warning() -> None:
    results = list(network.check_interfaces(host(), target_of(two_nodes(), "server-0")))
    assert statuses(results) == [Status.WARN]


def test_hccl_takes_prefixes_and_exceptions() -> None:
    def checked(text: str) -> list[Status]:
        variables = host(variables={"HCCL_SOCKET_IFNAME": text})
        return statuses(list(network.check_interfaces(variables, Target())))

    assert checked("eth") == [Status.OK] and checked("=eth0") == [Status.OK]
    assert checked("=eth") == [Status.FAIL] and checked("enp") == [Status.FAIL]


def test_gloo_takes_no_prefix() -> None:
    variables = host(variables={"GLOO_SOCKET_IFNAME": "eth"})
    assert statuses(list(network.check_interfaces(variables, Target()))) == [Status.FAIL]


def test_without_ip_nothing_is_known() -> None:
    target = group("192.0.2.1", "eth0")
    empty = RecordedHost(Recording())
    assert statuses(list(network.check_interfaces(empty, target))) == [Status.UNKNOWN]
    assert list(network.check_addresses(empty, target)) == []
    for text in ("no JSON", "[1, 2]", '{"a": 1}', '[{"ifname": "eth0", "flags": 3, "addr_info": "x"}]'):
        broken = RecordedHost(Recording(commands={"ip -j addr": Output(text=text)}))
        list(network.check_interfaces(broken, target))


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((), Status.FAIL),
        (("127.0.1.1",), Status.WARN),
        (("192.0.2.1",), Status.OK),
        (("192.0.2.5",), Status.FAIL),
    ],
)
def test_the_host_name(found: tuple[str, ...], status: Status) -> None:
    names = {"node": found} if found else {}
    results = list(network.check_host_name(host(names=names), group("192.0.2.1", "eth0")))
    assert statuses(results) == [status]


def test_a_web_proxy_between_prefill_and_decode() -> None:
    target = target_of(disaggregated(), "decode-0")

    def checked(**variables: str) -> list[Status]:
        return statuses(list(network.check_web_proxy(host(variables=variables), target)))

    assert checked() == [] and checked(http_proxy="http://proxy:3128") == [Status.WARN]
    assert checked(https_proxy="http://proxy:3128", no_proxy="192.0.2.1,192.0.2.2") == []
    assert checked(HTTP_PROXY="http://proxy:3128", NO_PROXY="*") == []
