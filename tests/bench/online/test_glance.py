"""What is told of a run while it goes on."""

from __future__ import annotations

import asyncio

import pytest

from qanat.bench.client.client import Client
from qanat.bench.client.load import Load
from qanat.bench.client.recording import Recording, Store
from qanat.bench.online.glance import MAX_LOOKED, Glance
from qanat.deploy.verify.address import Address
from tests.support.server_process import free_port

MS = 1_000_000


def load_of(recordings: list[Recording]) -> Load:
    async def make() -> Load:
        return Load(Client(Address(False, "127.0.0.1", free_port(), ""), None, Store(), 1.0))

    load = asyncio.run(make())
    load.record.recordings = recordings
    return load


def recording_of(index: int, pieces: list[tuple[int, bytes]]) -> Recording:
    """A request that is due at 1 s, and whose pieces come so many milliseconds later."""
    recording = Recording(index, 1000 * MS)
    for at_ms, piece in pieces:
        recording.times_ns.append((1000 + at_ms) * MS)
        recording.pieces.append(piece)
    return recording


def test_a_head_alone_is_no_token_and_times_count_once() -> None:
    recording = recording_of(0, [(5, b"HTTP/1.1 200 OK\r\n\r\n")])
    load, glance = load_of([recording]), Glance()
    assert glance.look(load, 1, None)["ttft_ms"] is None
    for at_ms in (30, 40, 50):
        recording.times_ns.append((1000 + at_ms) * MS)
        recording.pieces.append(b"x")
        figures = glance.look(load, 1, 7.0)
    assert figures["ttft_ms"] == [30, 30, 30]
    assert figures["itl_ms"] == [10, 10, 10]
    assert figures["tokens_per_s"] == 7.0
    assert figures["pieces_per_s"] > 0


def test_a_head_with_the_first_token_in_it_counts() -> None:
    recording = recording_of(0, [(20, b"HTTP/1.1 200 OK\r\n\r\ndata: 1"), (26, b"data: 2")])
    figures = Glance().look(load_of([recording]), 1, None)
    assert figures["ttft_ms"] == [20, 20, 20]
    assert figures["itl_ms"] == [6, 6, 6]


def test_failures_are_counted_and_ended_requests_are_left() -> None:
    bad, refused, good = (recording_of(number, [(1, b"x")]) for number in range(3))
    bad.failure, refused.status, good.status = "cut", 500, 200
    load, glance = load_of([bad, refused, good]), Glance()
    for one in (bad, refused, good):
        one.end_ns = 2000 * MS
    for _ in range(2):
        figures = glance.look(load, 3, None)
        assert (figures["sent"], figures["errors"]) == (3, 2)


def test_a_look_at_many_requests_is_bounded() -> None:
    many = [recording_of(number, [(number, b"x")]) for number in range(MAX_LOOKED + 50)]
    figures = Glance().look(load_of(many), len(many), None)
    assert figures["ttft_ms"][0] == pytest.approx((MAX_LOOKED - 1) / 2)
