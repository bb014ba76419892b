"""Bodies of any kind and size: what engines understand the router understands too, and no body holds up the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.router.body_edit import edited
from qanat.router.calls import read_call
from qanat.router.json_body import decoded
from qanat.router.model import Call
from qanat.router.prefixes import prefix_hashes
from tests.router.making import call
from tests.router.routing import CHAT, COMPLETIONS, routed, run
from tests.router.scripted_engine import DONE, Said, ScriptedEngine, scripted, text
from tests.router.test_disaggregated import CONNECTORS, HI, pairs

ODD = [
    '{"a":"\\ud83d"}',
    '{"a":NaN,"b":[Infinity,-Infinity,1e999]}',
    '{"\\udfff":1}',
    '{"a":"\\ud83d\\ude00"}',
]


def read(body: bytes) -> Call:
    asked = Call("1", "POST", COMPLETIONS, (), body)
    read_call(asked)
    return asked


@pytest.mark.parametrize("odd", ODD)
def test_what_pythons_reader_takes_is_read(odd: str) -> None:
    fields = decoded(odd.encode())
    assert repr(fields) == repr(json.loads(odd))


def test_a_number_that_no_float_holds_is_left_to_the_engine() -> None:
    asked = read(b'{"temperature":1e999,"model":"m"}')
    assert asked.fields is None and asked.model == "m"


@pytest.mark.parametrize("odd", ODD)
def test_what_is_changed_in_an_odd_body_is_all_that_is_changed(odd: str) -> None:
    body = b'{"seed":1,' + odd.encode()[1:]
    fields = decoded(body)
    assert fields is not None
    changed = json.loads(edited(body, fields, {"seed": 2, "more": [1]}))
    assert repr(changed) == repr({**json.loads(body), "seed": 2, "more": [1]})


texts = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(texts | st.sampled_from(["model", "user", "prompt", "messages"]), values, min_size=1))
def test_any_body_is_read_hashed_and_changed_without_a_fault(fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    asked = read(body)
    assert asked.fields == fields
    for said in (asked.model, asked.session):
        assert said is None or said.encode()
    prefix_hashes(asked)
    assert json.loads(edited(body, asked.fields or {}, {"model": "other"})) == {**fields, "model": "other"}


HEAD = b'{"model":"m","stream":true,"n":2,"max_tokens":5,"priority":3,"user":"u",'
SIZE = 4 << 20
HEAVY = {
    "objects": b'"x":[' + b"{}," * (SIZE // 3) + b"{}]}",
    "lists": b'"x":[' + b"[[[]]]," * (SIZE // 7) + b"[]]}",
    "fields": b"".join(b'"%d":0,' % number for number in range(SIZE // 9)) + b'"x":0}',
    "numbers": b'"x":[' + b"1," * (SIZE // 2) + b"1]}",
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_body_of_countless_values_is_not_built_but_read_as_far_as_it_matters(name: str) -> None:
    """Nobody else is served while a body is decoded, so that what that may cost is bounded."""
    asked = read(HEAD + HEAVY[name])
    assert asked.fields is None
    assert (asked.model, asked.is_stream, asked.num_choices, asked.max_tokens) == ("m", True, 2, 5)
    assert (asked.priority, asked.session) == (3, "u")


@pytest.mark.parametrize(
    "value", [b"[" * 5000, b'[{"a":1}]', b'"\\ud83d"', b'"' + b"m" * 5000 + b'"', b"tru"]
)
def test_fields_of_a_heavy_body_may_hold_anything(value: bytes) -> None:
    asked = read(b'{"model":' + value + b',"user":' + value + b',"stream":' + value + b"," + HEAVY["numbers"])
    assert asked.fields is None and not asked.is_stream and asked.model in (None, "?")


def test_long_prompts_are_no_heavy_bodies() -> None:
    """A million tokens, as ids, as prose, as a program, and pictures."""
    prose = 'He said, "so it is: she [who] came; {they} went."\n' * 80000
    messages = [{"role": "user", "content": prose[:2000]} for _ in range(1000)]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (8 << 20)}}
    for fields in (
        {"prompt": list(range(1_000_000))},
        {"prompt": prose},
        {"messages": messages},
        {"messages": [{"role": "user", "content": [picture]}]},
    ):
        assert call(fields).fields == fields


def test_a_heavy_body_reaches_the_engine_as_it_is() -> None:
    def answer(fields: Any) -> Said:
        return Said([text("a", "stop"), DONE])

    async def look() -> None:
        engine = ScriptedEngine(answer)
        async with scripted(engine), routed(f"{engine.url},kind=vllm") as router:
            body = HEAD + HEAVY["objects"]
            response = await router.http.post(COMPLETIONS, content=body)
            assert response.status_code == 200 and response.content.endswith(DONE)
            assert engine.bodies == [body]

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
def test_no_body_that_cannot_be_read_reaches_a_pair(connector: str) -> None:
    """It might hold parameters that move caches to where a client wants them."""
    params = {"prompt": "Say: ", "kv_transfer_params": {"remote_host": "attacker"}}

    async def look() -> None:
        async with pairs(connector) as pair:
            heavy = json.dumps(params).encode()[:-1] + b"," + HEAVY["objects"]
            for path in (COMPLETIONS, CHAT, "/v1/messages", "/v1/embeddings"):
                for body in (
                    json.dumps(params).encode("utf-16"),
                    b"\xef\xbb\xbf" + json.dumps(params).encode(),
                    heavy,
                ):
                    response = await pair.router.http.post(path, content=body)
                    assert response.status_code == 400, response.text
                    assert "JSON" in response.json()["error"]["message"]
            odd = json.dumps(
                {"messages": HI, "user": "\ud83d", "kv_transfer_params": {"remote_host": "attacker"}}
            )
            assert (await pair.router.http.post(CHAT, content=odd.encode())).status_code == 200
            form = {"content-type": "multipart/form-data; boundary=x"}
            await pair.router.http.post("/v1/audio/transcriptions", content=b"--x--", headers=form)
            assert "attacker" not in json.dumps(pair.prefill_fields + pair.decode_fields)

    run(look())


def test_who_does_not_know_a_secret_has_no_body_decoded_at_the_metaserver() -> None:
    async def look() -> None:
        async with pairs("push") as pair:
            for body in (b"[]", b"\xff", HEAVY["objects"]):
                response = await pair.router.http.post("/v1/metaserver", content=body)
                assert response.status_code == 404

    run(look())
