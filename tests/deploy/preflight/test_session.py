"""Two ends of a comparison in one process, and ends that know the token but say what they should not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from qanat.deploy.preflight.peer_facts import PeerFacts
from qanat.deploy.preflight.recording import RecordedHost, Recording
from qanat.deploy.preflight.session import CLOCK_ROUNDS, Measured, run_agent, run_peer
from qanat.deploy.preflight.wire import PeerError, Wire, new_token

ADDRESS = "127.0.0.1"
Ending = tuple[PeerFacts, Measured] | PeerError


def facts(node: str, *ports: int) -> PeerFacts:
    return PeerFacts(
        node=node,
        host=node,
        qanat="0.1.0",
        plan="p",
        image="",
        driver="",
        chips=(),
        num_planned=0,
        tls=(),
        packages={},
        model={},
        ports=ports,
    )


def free_ports(number: int) -> list[int]:
    servers = [socket.socket() for _ in range(number)]
    for server in servers:
        server.bind((ADDRESS, 0))
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


def together(agent: Callable[[Wire], Any], peer: Callable[[Wire], Any]) -> tuple[Any, Any]:
    """What both ends return, or the error each ended with."""
    token = new_token()
    found: list[Any] = [None, None]

    def end(place: int, connection: socket.socket, run: Callable[[Wire], Any]) -> None:
        with connection:
            wire = Wire(connection, token, is_agent=place == 0)
            try:
                wire.greet()
                found[place] = run(wire)
            except PeerError as error:
                found[place] = error

    with socket.create_server((ADDRESS, 0)) as server:
        there = socket.create_connection(server.getsockname())
        here, _ = server.accept()
    thread = threading.Thread(target=end, args=(1, there, peer))
    thread.start()
    end(0, here, agent)
    thread.join()
    return found[0], found[1]


def host(time_s: float = 1000.0) -> RecordedHost:
    return RecordedHost(Recording(time_s=time_s))


def test_both_ends_have_all_of_it() -> None:
    one, two, three = free_ports(3)
    own, other = facts("a", one, two), facts("b", three)
    agent, peer = together(
        lambda wire: run_agent(wire, host(1010.0), own), lambda wire: run_peer(wire, host(1000.0), other)
    )
    assert agent[0] == other and peer[0] == own and agent[1] == peer[1]
    measured = peer[1]
    # The clocks stand still, so that the skew is exact but for half of the message's way.
    assert measured.skew_s == pytest.approx(10 - measured.round_trip_s / 2)
    assert measured.closed_at_agent == {} and measured.closed_at_peer == {} and measured.num_tried == 3
    assert measured.to_agent_mib_s > 0 and measured.to_peer_mib_s > 0


def test_a_port_that_somebody_else_listens_on_is_tried_too() -> None:
    with socket.create_server((ADDRESS, 0)) as server:
        own = facts("a", server.getsockname()[1])
        _, peer = together(
            lambda wire: run_agent(wire, host(), own), lambda wire: run_peer(wire, host(), facts("b"))
        )
    assert peer[1].num_tried == 1 and peer[1].closed_at_agent == {}


def test_a_port_that_cannot_be_opened_is_left_out() -> None:
    with socket.socket() as bound:  # bound, but nobody listens
        bound.bind((ADDRESS, 0))
        own = facts("a", bound.getsockname()[1])
        _, peer = together(
            lambda wire: run_agent(wire, host(), own), lambda wire: run_peer(wire, host(), facts("b"))
        )
    assert peer[1].num_tried == 0 and peer[1].closed_at_agent == {}


def test_a_closed_port_is_told() -> None:
    (closed,) = free_ports(1)

    def agent(wire: Wire) -> Any:
        wire.receive("facts")
        wire.send("facts", facts=msgspec.to_builtins(facts("a")))
        for _ in range(CLOCK_ROUNDS):
            wire.receive("clock")
            wire.send("clock", time_s=0)
        wire.send("open", ports=[closed])
        return wire.receive("tried")["closed"]

    found, _ = together(agent, lambda wire: run_peer(wire, host(), facts("b")))
    assert found == {str(closed): "Connection refused"}


def agent_that_says(step: str, **message: Any) -> Callable[[Wire], Any]:
    """An agent that knows the token and goes wrong at a step."""

    def run(wire: Wire) -> None:
        wire.receive("facts")
        if step == "facts":
            wire.send("facts", **message)
            return
        wire.send("facts", facts=msgspec.to_builtins(facts("a")))
        for _ in range(CLOCK_ROUNDS):
            wire.receive("clock")
            wire.send("clock", **(message if step == "clock" else {"time_s": 0}))
        wire.send("open", **(message if step == "open" else {"ports": []}))
        wire.receive("tried")
        wire.send("closed")
        wire.receive("open")
        wire.send("tried", **(message if step == "tried" else {"closed": {}}))
        wire.receive("closed")
        wire.receive("bulk")
        wire.receive_exactly(2**18)
        wire.send("got", **message)

    return run


@pytest.mark.parametrize(
    ("step", "message", "told"),
    [
        ("facts", {"facts": {"node": 1}}, "otherwise than this version"),
        ("facts", {"facts": None}, "otherwise than this version"),
        ("clock", {"time_s": "late"}, "has no clock"),
        ("open", {"ports": "all"}, "which ports it opened"),
        ("open", {"ports": list(range(1, 100))}, "which ports it opened"),
        ("open", {"ports": ["22"]}, "a port that there is not"),
        ("open", {"ports": [70000]}, "a port that there is not"),
        ("tried", {"closed": ["1"]}, "which ports it reached"),
        ("tried", {"closed": {"1": "never opened"}}, "which ports it reached"),
        ("got", {"took_s": None}, "how long it took"),
    ],
)
def test_a_peer_refuses_what_an_agent_should_not_say(step: str, message: dict[str, Any], told: str) -> None:
    _, error = together(agent_that_says(step, **message), lambda wire: run_peer(wire, host(), facts("b")))
    assert isinstance(error, PeerError) and told in str(error)


def peer_that_says(step: str, **message: Any) -> Callable[[Wire], Any]:
    """A peer that knows the token and goes wrong at a step."""

    def run(wire: Wire) -> None:
        wire.send("facts", facts=msgspec.to_builtins(facts("b")))
        wire.receive("facts")
        for _ in range(CLOCK_ROUNDS):
            wire.send("clock")
            wire.receive("clock")
        wire.receive("open")
        wire.send("tried", closed={})
        wire.receive("closed")
        wire.send("open", ports=[])
        wire.receive("tried")
        wire.send("closed")
        if step == "bulk":
            wire.send("bulk", **message)
            return
        if step == "endless":
            for _ in range(8):
                wire.send("bulk", num_bytes=1)
                wire.send_bulk(1)
                wire.receive("got")
            return
        wire.send("bulk", num_bytes=0, speed="fast")
        while (size := wire.receive("bulk")["num_bytes"]) > 0:
            wire.receive_exactly(size)
            wire.send("got", took_s=2.0)
        wire.send("measured", **message)

    return run


@pytest.mark.parametrize(
    ("step", "message", "told"),
    [
        ("bulk", {"num_bytes": 2**40}, "sends too much"),
        ("bulk", {"num_bytes": -1}, "sends too much"),
        ("endless", {}, "sends too much"),
        ("measured", {"measured": {"skew_s": "x"}}, "measured otherwise"),
        ("measured", {}, "measured otherwise"),
    ],
)
def test_an_agent_refuses_what_a_peer_should_not_say(step: str, message: dict[str, Any], told: str) -> None:
    error, _ = together(lambda wire: run_agent(wire, host(), facts("a")), peer_that_says(step, **message))
    assert isinstance(error, PeerError) and told in str(error)


def test_an_end_that_goes_away_is_noticed() -> None:
    error, _ = together(lambda wire: run_agent(wire, host(), facts("a")), lambda wire: None)
    assert isinstance(error, PeerError)
