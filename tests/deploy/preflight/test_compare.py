from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qanat.deploy.preflight.compare import compare
from qanat.deploy.preflight.peer_facts import PeerFacts, decode_facts, plan_hash, sample_ports
from qanat.deploy.preflight.result import Result, Status
from qanat.deploy.preflight.session import Measured
from qanat.deploy.preflight.target import target_of
from qanat.deploy.preflight.wire import PeerError
from tests.deploy.plan.example_plans import disaggregated, two_nodes

FACTS = PeerFacts(
    node="server-0",
    host="one",
    qanat="0.1.0",
    plan="0123456789abcdef",
    image="quay.io/ascend/vllm-ascend:v0.23.0",
    driver="26.0.rc1",
    chips=("910B3",) * 8,
    num_planned=8,
    tls=("0",),
    packages={"vllm": "0.23.0"},
    model={"config": "a", "index": "b"},
    ports=(8000,),
)
MEASURED = Measured(
    skew_s=0.01,
    round_trip_s=0.001,
    closed_at_agent={},
    closed_at_peer={},
    num_tried=4,
    to_agent_mib_s=1000.0,
    to_peer_mib_s=1000.0,
)


def results(measured: dict[str, Any] | None = None, **peer: Any) -> dict[str, Result]:
    """What is not all right, by check."""
    other = msgspec.structs.replace(FACTS, node="server-1", host="two", **peer)
    found = compare(FACTS, other, msgspec.structs.replace(MEASURED, **(measured or {})))
    return {each.check: each for each in found if each.status is not Status.OK}


def test_two_nodes_that_agree() -> None:
    assert results() == {}


@pytest.mark.parametrize(
    ("peer", "check", "status", "seen"),
    [
        ({"plan": "f"}, "peer-plan", Status.FAIL, "server-1 has plan f"),
        (
            {"driver": "25.5.1"},
            "peer-versions",
            Status.FAIL,
            "driver: server-0 has 26.0.rc1, server-1 has 25.5.1",
        ),
        ({"driver": ""}, "peer-versions", Status.UNKNOWN, "server-1 unknown"),
        ({"image": "v0.22.1rc1"}, "peer-versions", Status.FAIL, "image"),
        ({"qanat": "0.2.0"}, "peer-versions", Status.WARN, "qanat"),
        ({"packages": {"vllm": "0.22.1"}}, "peer-versions", Status.FAIL, "vllm: server-0 has 0.23.0"),
        ({"chips": ("910B3",) * 7}, "peer-npus", Status.FAIL, "server-1 has 7 of 8 NPUs"),
        ({"chips": ()}, "peer-npus", Status.UNKNOWN, "server-1 sees no NPU"),
        ({"tls": ("1",)}, "npu-tls", Status.FAIL, "server-0 off, server-1 on"),
        ({"tls": ("0", "1")}, "npu-tls", Status.FAIL, "server-1 off/on"),
        ({"model": {"config": "a", "index": "c"}}, "peer-model", Status.FAIL, "differ in: index"),
        ({"model": {}}, "peer-model", Status.UNKNOWN, "no model folder on server-1"),
    ],
)
def test_what_differs_is_told(peer: dict[str, Any], check: str, status: Status, seen: str) -> None:
    found = results(**peer)
    assert set(found) == {check} and found[check].status is status and seen in found[check].seen


@pytest.mark.parametrize(
    ("measured", "check", "status", "seen"),
    [
        ({"skew_s": 4.5}, "peer-clock", Status.WARN, "server-0 is 4.50 s ahead of that of server-1"),
        ({"skew_s": -4.5}, "peer-clock", Status.WARN, "server-1 is 4.50 s ahead of that of server-0"),
        (
            {"closed_at_agent": {8000: "no answer", 13389: "no answer"}},
            "peer-reach",
            Status.FAIL,
            "server-1 does not reach server-0 on 8000, 13389: no answer",
        ),
        (
            {"closed_at_peer": {36010: "Connection refused"}},
            "peer-reach",
            Status.FAIL,
            "server-0 does not reach server-1 on 36010",
        ),
        ({"num_tried": 0}, "peer-reach", Status.UNKNOWN, "no ports"),
        ({"to_peer_mib_s": 11.0}, "peer-bandwidth", Status.WARN, "server-0 to server-1: 11 MiB/s"),
    ],
)
def test_what_is_measured_is_told(measured: dict[str, Any], check: str, status: Status, seen: str) -> None:
    found = results(measured)
    assert set(found) == {check} and found[check].status is status and seen in found[check].seen


def test_a_slow_way_does_not_make_a_skew() -> None:
    assert results({"skew_s": 1.5, "round_trip_s": 2.0}) == {}


def test_ports_that_are_tried() -> None:
    ports = sample_ports(target_of(disaggregated(), "prefill-0"))
    assert ports == (8010, 20000, 30060, 35999, 36100, 36115, 60000, 60015)


def test_the_hash_tells_plans_apart() -> None:
    assert plan_hash(two_nodes()) == plan_hash(two_nodes()) != plan_hash(disaggregated())


@pytest.mark.parametrize(
    "change",
    [{"ports": [0]}, {"ports": list(range(1, 40))}, {"chips": "910B3"}, {"extra": 1}, {"node": None}],
)
def test_facts_that_are_not_as_they_should_be_are_refused(change: dict[str, Any]) -> None:
    raw = msgspec.to_builtins(FACTS)
    assert decode_facts(raw) == FACTS
    with pytest.raises(PeerError):
        decode_facts({**raw, **change})
