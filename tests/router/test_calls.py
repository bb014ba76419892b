"""What is read of a request, whatever it holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.router.calls import key_hash, read_call
from qanat.router.model import Call
from tests.router.making import call


def test_a_usual_request() -> None:
    asked = call(
        {"model": "m", "stream": True, "n": 2, "max_tokens": 9, "priority": -3, "user": "u", "messages": []},
        headers=((b"authorization", b"Bearer secret"),),
    )
    assert (asked.model, asked.is_stream, asked.num_choices, asked.max_tokens) == ("m", True, 2, 9)
    assert (asked.priority, asked.session) == (-3, "u")
    assert asked.key_hash == key_hash("secret") and "secret" not in asked.key_hash
    assert asked.num_prompt_tokens == len(asked.body) // 4


def test_the_session_header_goes_before_the_user() -> None:
    assert call({"user": "u"}, headers=((b"x-session-id", b"s"),)).session == "s"
    assert call({"user": ""}).session is None


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        (((b"authorization", b"bearer k"),), "k"),
        (((b"x-api-key", b"k"),), "k"),
        (((b"authorization", b"Basic k"),), ""),
        ((), ""),
    ],
)
def test_keys_are_found_where_clients_put_them(headers: Any, key: str) -> None:
    assert call({}, headers=headers).key_hash == key_hash(key)


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"max_completion_tokens": 3, "max_tokens": 5}, 3),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": "9"}, None),
    ],
)
def test_the_length_has_three_names(fields: dict[str, Any], length: int | None) -> None:
    assert call(fields).max_tokens == length


def test_token_ids_are_counted() -> None:
    assert call({"prompt": [1, 2, 3]}).num_prompt_tokens == 3
    assert call({"prompt": [[1, 2], [3]]}).num_prompt_tokens == 3
    assert call({"prompt": ["a", [1]]}).num_prompt_tokens > 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b"\xff\xfe", b'{"a":' * 5000, b"{\xff}"])
def test_bodies_that_are_no_object_are_left_to_the_engine(body: bytes) -> None:
    asked = Call("1", "POST", "/v1/completions", (), body)
    read_call(asked)
    assert asked.model is None and not asked.is_stream


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    "model stream n max_tokens max_completion_tokens priority user prompt messages timeout".split()
)


@given(st.dictionaries(names, values))
def test_any_object_is_read_without_a_fault(fields: dict[str, Any]) -> None:
    try:
        body = msgspec.json.encode(fields)
    except (msgspec.MsgspecError, OverflowError):
        return
    asked = Call("1", "POST", "/v1/completions", (), body)
    read_call(asked)
    assert 1 <= asked.num_choices <= 128
    assert asked.model is None or isinstance(asked.model, str)
    assert asked.num_prompt_tokens >= 0


@given(
    st.binary(max_size=50),
    st.lists(st.tuples(st.sampled_from([b"authorization", b"x-session-id"]), st.binary())),
)
def test_any_bytes_are_read_without_a_fault(body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    read_call(Call("1", "POST", "/v1/completions", headers, body))
