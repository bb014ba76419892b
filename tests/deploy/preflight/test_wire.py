from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from qanat.deploy.preflight.wire import GREETING, MAX_FRAME_BYTES, PeerError, Wire, new_token


def greeted(token: str, other_token: str | None = None) -> tuple[list[object], socket.socket, socket.socket]:
    """Both ends after greeting each other: a `Wire` each, or the error it ended with."""
    one, two = socket.socketpair()
    ends: list[object] = [None, None]

    def end(place: int, connection: socket.socket, secret: str, is_agent: bool) -> None:
        wire = Wire(connection, secret, is_agent=is_agent)
        try:
            wire.greet()
            ends[place] = wire
        except PeerError as error:
            ends[place] = error
            connection.close()

    other = threading.Thread(target=end, args=(1, two, other_token or token, False))
    other.start()
    end(0, one, token, True)
    other.join()
    return ends, one, two


def connected() -> tuple[Wire, Wire, socket.socket, socket.socket]:
    (agent, peer), one, two = greeted(new_token())
    assert isinstance(agent, Wire) and isinstance(peer, Wire)
    return agent, peer, one, two


def test_messages_reach_the_other_end() -> None:
    agent, peer, one, two = connected()
    with closing(one), closing(two):
        for number in range(3):
            agent.send("fact", number=number)
            assert peer.receive("fact") == {"kind": "fact", "number": number}
            peer.send("answer", text="ä")
            assert agent.receive("answer")["text"] == "ä"


def test_tokens_are_not_alike() -> None:
    assert len({new_token() for _ in range(100)}) == 100 and len(new_token()) >= 32


def test_a_wrong_token_is_noticed_by_both_ends() -> None:
    ends, one, two = greeted(new_token(), new_token())
    assert isinstance(ends[0], PeerError) and "token" in str(ends[0])
    assert isinstance(ends[1], PeerError)
    one.close()
    two.close()


def test_the_token_is_never_sent() -> None:
    """What both ends say is passed on by a third that listens."""
    token = new_token()
    seen = bytearray()
    agent_side, middle_one = socket.socketpair()
    middle_two, peer_side = socket.socketpair()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        while True:
            try:
                data = source.recv(4096)
            except OSError:
                return
            if not data:
                return
            seen.extend(data)
            sink.sendall(data)

    pumps = [
        threading.Thread(target=pump, args=pair)
        for pair in ((middle_one, middle_two), (middle_two, middle_one))
    ]
    for each in pumps:
        each.start()
    agent = Wire(agent_side, token, is_agent=True)
    greeting = threading.Thread(target=agent.greet)
    greeting.start()
    peer = Wire(peer_side, token, is_agent=False)
    peer.greet()
    greeting.join()
    peer.send("hello")
    assert agent.receive("hello")
    agent_side.close()
    peer_side.close()
    for each in pumps:
        each.join()
    middle_one.close()
    middle_two.close()
    assert GREETING.encode() in seen and token.encode() not in seen


def frame(payload: bytes, mac: bytes = bytes(32)) -> bytes:
    return struct.pack(">I", len(payload)) + payload + mac


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(b'{"kind": "fact"}'), "changed"),
        (struct.pack(">I", MAX_FRAME_BYTES + 1), "too long"),
        (b"\0", "closed"),
    ],
)
def test_what_does_not_carry_the_proof_is_refused(data: bytes, reason: str) -> None:
    agent, _, one, two = connected()
    with closing(one):
        two.sendall(data)
        two.close()
        with pytest.raises(PeerError, match=reason):
            agent.receive("fact")


def test_a_message_cannot_be_sent_twice_nor_back() -> None:
    agent, peer, one, two = connected()
    with closing(one), closing(two):
        peer.send("fact")
        recorded = one.recv(4096)
        two.sendall(recorded + recorded)
        assert agent.receive("fact")
        with pytest.raises(PeerError, match="changed"):
            agent.receive("fact")
        one.sendall(recorded)
        with pytest.raises(PeerError, match="changed"):
            peer.receive("fact")


def test_a_message_of_another_kind_is_refused() -> None:
    agent, peer, one, two = connected()
    with closing(one), closing(two):
        peer.send("run", command="reboot")
        with pytest.raises(PeerError, match="expected a message fact"):
            agent.receive("fact")


def greeting_of(**fields: object) -> bytes:
    payload = json.dumps(fields).encode()
    return struct.pack(">I", len(payload)) + payload


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        greeting_of(greeting="other", nonce="0" * 32),
        greeting_of(greeting=GREETING, nonce=3),
        greeting_of(greeting=GREETING, nonce="0" * 31),
        greeting_of(greeting=GREETING, nonce="\ud800" * 32),
        greeting_of(greeting=GREETING, nonce="0" * 32) + greeting_of(proof="\ud800" * 64),
        struct.pack(">I", 4) + b"nope",
        struct.pack(">I", 2) + b"[]",
        greeting_of(greeting=GREETING, nonce="0" * 32) + greeting_of(proof="é" * 64),
        greeting_of(greeting=GREETING, nonce="0" * 32) + greeting_of(proof=None),
        b"",
    ],
)
def test_a_stranger_is_sent_away(data: bytes) -> None:
    one, two = socket.socketpair()
    with closing(one):
        two.sendall(data)
        two.shutdown(socket.SHUT_WR)
        with pytest.raises(PeerError):
            Wire(one, new_token(), is_agent=True).greet()
        two.close()


def test_a_proof_cannot_be_mirrored() -> None:
    """A stranger who sends the agent's own words back proves nothing."""
    one, two = socket.socketpair()

    def mirror() -> None:
        echo: Callable[[bytes], None] = two.sendall
        for _ in range(2):
            data = two.recv(4096)
            if not data:
                return
            echo(data)

    thread = threading.Thread(target=mirror)
    thread.start()
    wire = Wire(one, new_token(), is_agent=True)
    wire.connection.settimeout(1)
    with pytest.raises(PeerError):
        wire.greet()
    one.close()
    thread.join()
    two.close()


def test_a_token_can_stand_behind_a_flag() -> None:
    """Base64 for addresses has dashes: one token in 64 began like a flag."""
    assert all(new_token().isalnum() for _ in range(300))
