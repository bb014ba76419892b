"""Chained hashes of prompts: equal beginnings give equal hashes, and memories are bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.router.prefixes import (
    FIRST_PIECE_BYTES,
    MAX_PIECES,
    PrefixMemory,
    chained,
    known_share,
    prefix_hashes,
)
from tests.router.making import call


@given(st.binary(max_size=20_000), st.binary(max_size=2000))
def test_what_begins_alike_has_the_same_first_hashes(data: bytes, more: bytes) -> None:
    short, long = chained(data), chained(data + more)
    assert long[: len(short)] == short


@given(st.binary(min_size=FIRST_PIECE_BYTES, max_size=9000), st.data())
def test_a_change_shows_in_its_piece_and_all_behind_it(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, len(data) - 1))
    changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    pairs = list(zip(chained(data), chained(changed), strict=True))
    same = [left == right for left, right in pairs]
    assert same == sorted(same, reverse=True)
    if place < FIRST_PIECE_BYTES:
        assert not any(same)


def test_long_prompts_have_few_pieces() -> None:
    assert len(chained(bytes(63 << 10))) == 40
    assert len(chained(bytes(100 << 20))) <= MAX_PIECES


def test_the_next_turn_of_a_conversation_knows_the_one_before() -> None:
    messages = [{"role": "system", "content": "be kind " * 200}, {"role": "user", "content": "hello " * 100}]
    first = prefix_hashes(call({"model": "m", "messages": messages}))
    more = [*messages, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and now?"}]
    memory = PrefixMemory()
    memory.add(first)
    assert first and memory.num_known(prefix_hashes(call({"model": "m", "messages": more}))) == len(first)


def test_another_model_or_other_tools_are_another_prefix() -> None:
    prompt = {"messages": [{"role": "user", "content": "hello " * 200}]}
    memory = PrefixMemory()
    memory.add(prefix_hashes(call({"model": "m", **prompt})))
    for other in (
        {"model": "n"},
        {"model": "m", "tools": [{"name": "t"}]},
        {"model": "m", "cache_salt": "s"},
    ):
        assert memory.num_known(prefix_hashes(call({**other, **prompt}))) == 0


def test_the_order_of_other_fields_does_not_matter() -> None:
    messages = [{"role": "user", "content": "hello " * 200}]
    one = call({"model": "m", "temperature": 0, "messages": messages})
    other = call({"messages": messages, "stream": True, "model": "m"})
    assert prefix_hashes(one) == prefix_hashes(other) != ()


def test_bodies_without_a_prompt_have_no_prefix() -> None:
    assert prefix_hashes(call({"input_file": "x"})) == prefix_hashes(call(None)) == ()


@given(st.lists(st.lists(st.integers(0, 40), unique=True, max_size=12), max_size=40), st.integers(1, 20))
def test_a_memory_is_bounded_and_forgets_tails_first(prompts: list[list[int]], capacity: int) -> None:
    memory = PrefixMemory(capacity)
    for prompt in prompts:
        memory.add(prompt)
        assert len(memory) <= capacity
        assert memory.num_known(prompt) == min(len(prompt), capacity)


def test_the_known_share_is_one_of_bytes() -> None:
    assert known_share(0, 10) == 0 and known_share(10, 10) == 1
    assert known_share(8, 16) == 8 / (8 + 16)  # the second eight are twice as large
    assert known_share(0, 0) == 0
