"""What travels between the front end and the core."""

from __future__ import annotations

import msgspec

from qanat.core.constraint import Constraint
from qanat.core.request import Request
from qanat.engine.messages import AddRequests, ToCore
from qanat.engine.shared_constraints import SharedConstraints
from tests.support.step_loop import make_request

LARGE = Constraint("guidance", "x" * 2**20)


def received(requests: list[Request], shared: SharedConstraints) -> list[Request]:
    encoded = msgspec.msgpack.encode(AddRequests.of(requests))
    message = msgspec.msgpack.decode(encoded, type=ToCore)
    assert isinstance(message, AddRequests)
    return message.read(shared.shared)


def with_form(constraint: Constraint, num_requests: int, name: str = "r") -> list[Request]:
    return [make_request(f"{name}{i}", 3, 2, constraint=constraint) for i in range(num_requests)]


def test_the_form_of_many_choices_travels_once_and_is_stored_once() -> None:
    requests = with_form(LARGE, 128)
    assert len(msgspec.msgpack.encode(AddRequests.of(requests))) < 2 * len(LARGE.grammar)
    there = received(requests, SharedConstraints())
    assert [one.request_id for one in there] == [one.request_id for one in requests]
    assert {id(one.constraint) for one in there} == {id(there[0].constraint)}
    assert there[0].constraint == LARGE
    assert all(one.constraint is LARGE for one in requests), "the caller's requests stay as they are"


def test_requests_without_a_form_have_none() -> None:
    (there,) = received([make_request("plain", 3, 2)], SharedConstraints())
    assert there.constraint is None


def test_calls_with_the_same_form_share_it_as_long_as_one_of_them_lives() -> None:
    shared = SharedConstraints()
    first = received(with_form(LARGE, 2, "a"), shared)
    second = received(with_form(LARGE, 2, "b"), shared)
    assert second[0].constraint is first[0].constraint
    assert len(shared) == 1
    other = received(with_form(Constraint("guidance", "y"), 1, "c"), shared)
    assert other[0].constraint != first[0].constraint
    assert len(shared) == 2
    del first, second, other
    assert len(shared) == 0
