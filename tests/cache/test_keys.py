"""Keys of blocks: the same in every process, and different for whatever may not be mixed up."""

from __future__ import annotations

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from qanat.cache.keys import KeyChain, block_key, root_key
from tests.support.step_loop import make_request


def test_a_key_is_the_sha256_of_its_parent_and_its_tokens() -> None:
    parent = root_key("model", "layout")
    expected = hashlib.sha256(parent + struct.pack("<3I", 1, 2, 151_935)).digest()
    assert block_key(parent, [1, 2, 151_935]) == expected


def test_the_root_is_the_same_in_every_process() -> None:
    whole = root_key("model", "layout", adapter="a", salt="s", owner="o").hex()
    assert whole == "19b141f54ec3b133c610c1747f26d1cf6122e59c3a407890c926a1e737a6cf0f"


def test_whatever_may_not_be_mixed_up_has_another_root() -> None:
    parts = {"model_digest": "m", "layout": "l", "adapter": "a", "salt": "s", "owner": "o"}
    roots = {root_key(**parts)} | {root_key(**(parts | {name: "other"})) for name in parts}
    assert len(roots) == len(parts) + 1
    assert root_key("ab", "c") != root_key("a", "bc")
    assert root_key("m", "l", salt="x") != root_key("m", "l", owner="x")


@given(st.lists(st.integers(0, 5), max_size=20), st.lists(st.integers(0, 5), max_size=20))
def test_a_chain_runs_over_prompt_and_output(prompt: list[int], output: list[int]) -> None:
    request = make_request("r", prompt)
    request.output_token_ids = output
    root = root_key("m", "l")
    chain = KeyChain(root, request, 4)
    tokens, key = prompt + output, root
    keys = []
    for start in range(0, len(tokens) // 4 * 4, 4):
        key = block_key(key, tokens[start : start + 4])
        keys.append(key)
    assert [chain[number] for number in reversed(range(len(keys)))] == keys[::-1]


def test_a_chain_follows_the_output_as_it_grows() -> None:
    request = make_request("r", [1, 2, 3])
    chain = KeyChain(root_key("m", "l"), request, 4)
    request.output_token_ids += [4, 5, 6, 7, 8]
    assert chain[1] == block_key(block_key(root_key("m", "l"), [1, 2, 3, 4]), [5, 6, 7, 8])
