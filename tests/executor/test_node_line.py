"""The proof that both ends know the cluster's key, over real connections."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.executor import node_line
from qanat.executor.node_line import MAX_REPORT_BYTES, LineLostError, NodeLine, RefusedError, group_secret
from qanat.executor.node_messages import Answer, Beat, Challenge, Welcome

KEY, OTHER = b"k" * 32, b"o" * 32


def connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return ours, theirs


def outcomes(head_key: bytes | None, node_key: bytes | None) -> tuple[str, str]:
    """What becomes of node 0's side and of the other."""
    ours, theirs = connection()
    head, node = NodeLine(ours), NodeLine(theirs)

    def attempt(side: NodeLine, name: str, key: bytes | None) -> str:
        try:
            getattr(side, name)(key)
        except (LineLostError, RefusedError) as error:
            side.close()
            return str(error)
        return "taken"

    try:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(attempt, head, "greet", head_key)
            second = attempt(node, "introduce", node_key)
            return first.result(30), second
    finally:
        head.close()
        node.close()


@pytest.mark.parametrize("key", [None, KEY])
def test_who_has_the_same_key_or_none_is_taken(key: bytes | None) -> None:
    assert outcomes(key, key) == ("taken", "taken")


@pytest.mark.parametrize("node_key", [None, OTHER])
def test_node_0_refuses_who_does_not_know_the_key(node_key: bytes | None) -> None:
    head, node = outcomes(KEY, node_key)
    assert head.startswith("does not know QANAT_CLUSTER_KEY") and "QANAT_CLUSTER_KEY" in node
    assert "taken" not in (head, node)


def test_a_node_with_a_key_refuses_a_node_0_without() -> None:
    head, node = outcomes(None, KEY)
    assert "node 0 has no QANAT_CLUSTER_KEY" in node and head != "taken"


def test_a_node_refuses_who_only_pretends_to_know_the_key() -> None:
    ours, theirs = connection()
    impostor, node = NodeLine(ours), NodeLine(theirs)
    impostor.send(Challenge(b"n" * 32, True))
    impostor.send(Welcome(b"p" * 32))
    with pytest.raises(RefusedError, match="node 0 does not know"):
        node.introduce(KEY)
    impostor.close()
    node.close()


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_whatever_a_stranger_says_it_is_lost_or_refused(data: bytes) -> None:
    ours, theirs = connection()
    head = NodeLine(ours)
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises((LineLostError, RefusedError)):
        head.greet(KEY)
    head.close()
    theirs.close()


def test_who_hangs_up_or_says_too_much_is_lost() -> None:
    ours, theirs = connection()
    line = NodeLine(ours)
    theirs.sendall((2**40).to_bytes(8, "little"))
    with pytest.raises(LineLostError, match="no message"):
        line.receive()
    theirs.close()
    with pytest.raises(LineLostError, match="hung up"):
        line.receive()
    with pytest.raises(LineLostError, match="hung up"):
        for _ in range(1000):
            line.send(Beat())
    line.close()


def test_with_a_key_what_is_sent_is_not_the_secret_of_the_group() -> None:
    seed, another = b"s" * 32, b"t" * 32
    secrets = [group_secret(KEY, seed), group_secret(OTHER, seed), group_secret(KEY, another), seed]
    assert len(set(secrets)) == 4 and group_secret(None, seed) == seed


def test_a_stranger_that_has_greeted_may_say_little_until_it_is_taken() -> None:
    ours, theirs = connection()
    head, stranger = NodeLine(ours), NodeLine(theirs)
    stranger.send(Answer(b"n" * 32, b""))
    head.greet(None)
    size = (MAX_REPORT_BYTES + 1).to_bytes(8, "little")
    theirs.sendall(size)
    with pytest.raises(LineLostError, match="no message"):
        head.receive()
    head.admit()
    theirs.sendall(size)
    theirs.close()
    with pytest.raises(LineLostError, match="hung up"):
        head.receive()
    head.close()


def test_a_stranger_that_says_its_report_byte_by_byte_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_line, "GREETING_S", 0.5)
    ours, theirs = connection()
    head, stranger = NodeLine(ours), NodeLine(theirs)
    stranger.send(Answer(b"n" * 32, b""))
    head.greet(None)
    is_lost = threading.Event()

    def drip() -> None:
        theirs.sendall((1000).to_bytes(8, "little"))
        while not is_lost.wait(0.1):
            theirs.sendall(b".")

    with ThreadPoolExecutor(1) as pool:
        dripped = pool.submit(drip)
        try:
            with pytest.raises(LineLostError, match="too long to greet|silent"):
                head.receive()
        finally:
            is_lost.set()
        dripped.result(30)
    head.close()
    theirs.close()
