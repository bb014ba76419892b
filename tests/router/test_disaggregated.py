"""Pairs in both protocols, against stubs made from their description: they answer as one engine does."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from qanat.router.disaggregated.metaserver import Metaserver
from qanat.router.model import Endpoint, EndpointState, Role
from qanat.router.relay import Relay
from tests.router.routing import CHAT, COMPLETIONS, Routed, ids_of, routed, run
from tests.router.stub_engines import SCRIPT, Fault, StubEngine, stubs
from tests.router.test_continuation_by_text import joined
from tests.router.test_relay import figures, until
from tests.support.server_process import free_port

HI = [{"role": "user", "content": "hi there"}]
CONNECTORS = ["pull", "push"]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


class Pairs:
    """Two prefillers and two decoders behind a router."""

    def __init__(self, router: Routed, prefillers: list[StubEngine], decoders: list[StubEngine]) -> None:
        self.router = router
        self.prefillers = prefillers
        self.decoders = decoders

    def fail_prefill(self, *faults: Fault) -> None:
        shared = list(faults)
        for engine in self.prefillers:
            engine.faults = shared

    def fail_decode(self, *faults: Fault) -> None:
        shared = list(faults)
        for engine in self.decoders:
            engine.faults = shared

    @property
    def prefill_fields(self) -> list[dict[str, Any]]:
        return [asked.fields for engine in self.prefillers for asked in engine.asked]

    @property
    def decode_fields(self) -> list[dict[str, Any]]:
        return [asked.fields for engine in self.decoders for asked in engine.asked]

    @property
    def num_open(self) -> int:
        return sum(engine.num_open for engine in (*self.prefillers, *self.decoders))


@asynccontextmanager
async def pairs(connector: str, **options: Any) -> AsyncIterator[Pairs]:
    prefillers = [StubEngine("prefill"), StubEngine("prefill")]
    decoders = [StubEngine("decode"), StubEngine("decode")]
    async with stubs(*prefillers, *decoders):
        settings: dict[str, Any] = {
            "prefiller_hosts": ("127.0.0.1", "127.0.0.1"),
            "prefiller_ports": tuple(str(engine.port) for engine in prefillers),
            "decoder_hosts": ("127.0.0.1", "127.0.0.1"),
            "decoder_ports": tuple(str(engine.port) for engine in decoders),
            "connector": connector,
            "port": free_port(),
            **options,
        }
        async with routed(**settings) as router:
            yield Pairs(router, prefillers, decoders)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HI, **fields})
    for fields in (
        {},
        {"max_tokens": 5},
        {"max_tokens": 1},
        {"max_tokens": 8, "min_tokens": 4},
        {"max_completion_tokens": 6, "min_tokens": 6},
        {"n": 3},
        {"n": 2, "max_tokens": 4},
        {"logprobs": True, "top_logprobs": 2},
        {"response_format": {"type": "json_object"}},
        {"response_format": FORM, "max_tokens": 6},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [TOOL], "tool_choice": "none"},
        {"seed": 7, "temperature": 1.0, "top_p": 0.5},
        {"stop": [" said"]},
        {"stop": [" said"], "min_tokens": 2, "max_tokens": 100},
        {"stop_token_ids": [1], "ignore_eos": True, "max_tokens": 3},
        {"guided_regex": "a+"},
        {"structured_outputs": {"choice": ["a"]}},
        {"max_tokens": 4, "user": "u", "metadata": {"a": "b"}},
    )
] + [
    (COMPLETIONS, fields)
    for fields in (
        {"prompt": "Say: "},
        {"prompt": "Say: ", "max_tokens": 5},
        {"prompt": "Say: ", "max_tokens": 9, "min_tokens": 9},
        {"prompt": "Say: ", "echo": True},
        {"prompt": "Say: ", "echo": True, "logprobs": 1},
        {"prompt": "Say: ", "logprobs": 2},
        {"prompt": "Say: ", "prompt_logprobs": 1},
        {"prompt": "Say: ", "n": 2, "best_of": 2},
        {"prompt": ["Say: "]},
        {"prompt": ["Say: ", "Sing: "]},
        {"prompt": [1, 2, 3]},
        {"prompt": [[1, 2], [3]]},
        {"prompt": "Say: ", "stop": [","], "seed": 1},
        {"prompt": "Say: ", "response_format": {"type": "json_object"}},
        {"prompt": "Say: ", "max_tokens": 1},
        {"prompt": "Say: ", "bad_words": ["x"], "allowed_token_ids": [1]},
        {"prompt": "Say: ", "return_token_ids": True},
        {"prompt": "Say: ", "max_tokens": 3, "min_tokens": 7},
        {"prompt": "Say: ", "stream_options": {"include_usage": True}},
    )
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("connector", CONNECTORS)
def test_pd_009_answers_of_a_pair_are_those_of_an_engine_that_does_it_all(
    connector: str, stream: bool
) -> None:
    async def compare() -> None:
        whole = StubEngine()
        async with stubs(whole), routed(f"{whole.url},kind=vllm") as aggregated, pairs(connector) as pair:
            assert len(VARIANTS) == 40
            num_refused = 0
            for path, fields in VARIANTS:
                body = {"model": "m", **fields, "stream": stream}
                expected = await aggregated.http.post(path, json=body)
                got = await pair.router.http.post(path, json=body)
                assert got.status_code == expected.status_code, (fields, got.text)
                num_refused += got.status_code == 400
                assert _without_ids(got.content) == _without_ids(expected.content), fields
            # Whatever a prefiller got, its output was one token that nothing shapes.
            assert len(pair.prefill_fields) > 25
            for asked in pair.prefill_fields:
                assert asked["max_tokens"] == asked["min_tokens"] == 1 and asked["stream"] is False
                shaping = (
                    "n",
                    "stop",
                    "logprobs",
                    "echo",
                    "response_format",
                    "stream_options",
                    "guided_regex",
                )
                assert not any(name in asked for name in shaping)
                assert asked.get("tool_choice") in (None, "none")
            assert figures(pair.router) == (0, 0)
            # A request that the decoder refused leaves a prompt behind, which a prefiller drops after its own time.
            held = [name for engine in (*pair.prefillers, *pair.decoders) for name in engine.held]
            assert len(held) == (num_refused if connector == "pull" else 0)

    run(compare())


def _without_ids(content: bytes) -> Any:
    events = content.split(b"\n\n") if content.startswith(b"data:") else [content]
    kept = []
    for event in events:
        text = event.removeprefix(b"data: ")
        if text.startswith(b"{"):
            fields = json.loads(text)
            kept.append({name: fields[name] for name in sorted(fields) if name not in ("id", "created")})
        else:
            kept.append(text)
    return kept


def test_the_legs_of_the_pull_protocol_are_as_described() -> None:
    async def look() -> None:
        async with pairs("pull") as pair:
            headers = {"x-request-id": "mine"}
            body = {"model": "m", "messages": HI, "max_completion_tokens": 9, "min_tokens": 3}
            response = await pair.router.http.post(CHAT, json=body, headers=headers)
            assert response.headers["x-request-id"] == "mine"
            (prefill,) = pair.prefill_fields
            assert prefill == {
                "model": "m",
                "messages": HI,
                "stream": False,
                "max_tokens": 1,
                "min_tokens": 1,
                "max_completion_tokens": 1,
                "kv_transfer_params": {
                    "do_remote_decode": True,
                    "do_remote_prefill": False,
                    "remote_engine_id": None,
                    "remote_block_ids": None,
                    "remote_host": None,
                    "remote_port": None,
                },
            }
            (decode,) = pair.decode_fields
            assert decode.pop("kv_transfer_params")["remote_block_ids"] == [[1, 2], [3]]
            assert decode == body
            asked = [asked for engine in pair.prefillers + pair.decoders for asked in engine.asked]
            (own,) = {one.headers["x-request-id"] for one in asked}
            assert own != "mine" and response.json()["id"] == f"chatcmpl-{own}"
            assert "prefill=" in response.headers["x-qanat-router"]

    run(look())


def test_the_legs_of_the_push_protocol_are_as_described() -> None:
    async def look() -> None:
        async with pairs("push") as pair:
            body = {"model": "m", "prompt": "Say: ", "max_tokens": 9}
            response = await pair.router.http.post(COMPLETIONS, json=body)
            assert response.status_code == 200, response.text
            (decode,) = pair.decode_fields
            params = decode.pop("kv_transfer_params")
            url, _, token = params.pop("metaserver").partition("?token=")
            assert url == f"http://127.0.0.1:{pair.router.port}/v1/metaserver" and len(token) > 20
            assert params == {"do_remote_decode": False, "do_remote_prefill": True}
            assert decode == body
            (prefill,) = pair.prefill_fields
            params = prefill["kv_transfer_params"]
            assert params["remote_block_ids"] == [[7, 8], [1]] and params["do_remote_decode"] is True
            assert params["remote_cached_tokens"] == 0

    run(look())


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefiller_without_kv_transfer_params_is_an_error_that_says_why(stream: bool) -> None:
    async def look() -> None:
        async with pairs("pull") as pair:
            for engine in pair.prefillers:
                engine.keeps_params = False
            response = await pair.router.http.post(CHAT, json={"messages": HI, "stream": stream})
            assert response.status_code == 502
            assert "kv_transfer_params" in response.json()["error"]["message"]
            assert not pair.decode_fields and figures(pair.router) == (0, 0)

    run(look())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_prefiller_that_ended_the_answer_itself_answers(path: str, stream: bool) -> None:
    async def look() -> None:
        async with pairs("pull") as pair:
            for engine in pair.prefillers:
                engine.ends_at_once = True
            asked = {"messages": HI} if path == CHAT else {"prompt": "Say: "}
            usage = {"stream_options": {"include_usage": True}} if stream else {}
            response = await pair.router.http.post(path, json={**asked, "stream": stream, **usage})
            assert response.status_code == 200, response.text
            if stream:
                text, roles, ends, counts = joined(response.content)
                assert (text, roles, ends) == (SCRIPT[0], int(path == CHAT), ["stop"])
                assert counts["completion_tokens"] == 1 and response.content.endswith(b"data: [DONE]\n\n")
            else:
                choice = response.json()["choices"][0]
                assert (choice.get("text") or choice["message"]["content"]) == SCRIPT[0]
                assert "kv_transfer_params" not in response.json()
            assert not pair.decode_fields

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("side", ["prefill", "decode"])
@pytest.mark.parametrize("kind", ["die", "status", "refuse"])
def test_a_leg_that_fails_before_the_first_token_is_tried_with_others(
    connector: str, stream: bool, side: str, kind: str
) -> None:
    async def look() -> None:
        limit_s = 2.0 if kind == "refuse" else 60.0
        async with pairs(connector, first_byte_timeout_s=limit_s) as pair:
            fault = Fault(kind, 0, status=503)
            if side == "prefill":
                fault = Fault("status", status=503) if kind == "die" else fault
                pair.fail_prefill(fault)
            else:
                pair.fail_decode(fault)
            response = await pair.router.http.post(CHAT, json={"messages": HI, "stream": stream})
            assert response.status_code == 200, response.text
            assert SCRIPT[-1] in response.text
            await until(lambda: pair.num_open == 0)
            assert figures(pair.router) == (0, 0)
            failed = pair.prefillers if side == "prefill" else pair.decoders
            assert all(engine.asked for engine in failed)

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
def test_errors_of_the_prefill_leg_that_are_the_requests_own_are_passed_on(connector: str) -> None:
    async def look() -> None:
        async with pairs(connector) as pair:
            pair.fail_prefill(Fault("status", status=400))
            response = await pair.router.http.post(CHAT, json={"messages": HI})
            assert response.status_code == 400 and response.json()["error"]["message"] == "stub"
            assert len(pair.prefill_fields) == 1
            await until(lambda: pair.num_open == 0)
            assert figures(pair.router) == (0, 0)

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("kind", ["die", "error", "recompute"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_decoder_lost_in_mid_stream_is_replaced_by_way_of_a_prefiller(
    connector: str, kind: str, path: str
) -> None:
    async def look() -> None:
        asked: dict[str, Any] = {"messages": HI} if path == CHAT else {"prompt": "Say: ", "max_tokens": 20}
        body = {**asked, "stream_options": {"include_usage": True}}
        async with pairs(connector) as pair:
            expected = joined(await pair.router.stream(path, body))
            for cut in range(1, 9):
                for engine in (*pair.prefillers, *pair.decoders):
                    engine.asked.clear()
                pair.fail_decode(Fault(kind, cut))
                stream = await pair.router.stream(path, body)
                assert joined(stream) == expected, cut
                assert len(ids_of(stream)[0]) == 1
                assert len(pair.prefill_fields) == len(pair.decode_fields) == 2
                assert figures(pair.router) == (0, 0)

    run(look())


def test_a_whole_answer_that_was_given_back_is_computed_again() -> None:
    async def look() -> None:
        async with pairs("pull") as pair:
            pair.fail_decode(Fault("recompute"))
            response = await pair.router.http.post(CHAT, json={"messages": HI})
            assert response.json()["choices"][0]["message"]["content"] == "".join(SCRIPT)
            assert "recomputed" not in response.text and len(pair.decode_fields) == 2

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("place", ["prefill", "decode", "stream"])
def test_pd_003_a_client_that_leaves_frees_both_legs(connector: str, place: str) -> None:
    async def look() -> None:
        async with pairs(connector) as pair:
            for engine in pair.prefillers:
                engine.prefill_s = 30 if place == "prefill" else 0
            for engine in pair.decoders:
                engine.prefill_s = 30 if place == "decode" and connector == "pull" else 0
                engine.step_s = 0.2
            reader, writer = await asyncio.open_connection("127.0.0.1", pair.router.port)
            body = json.dumps({"messages": HI, "stream": True}).encode()
            writer.write(
                b"POST %b HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(body))
            )
            writer.write(body)
            if place == "prefill":
                await until(lambda: any(engine.num_open for engine in pair.prefillers))
            else:
                await until(lambda: any(engine.num_open for engine in pair.decoders))
            if place == "stream":
                await reader.readuntil(b"data: ")
            writer.transport.abort()
            await until(lambda: pair.num_open == 0)
            assert figures(pair.router) == (0, 0)
            for engine in (*pair.prefillers, *pair.decoders):
                engine.prefill_s = engine.step_s = 0
            assert b"[DONE]" in await pair.router.stream(CHAT, {"messages": HI})

    run(look())


@pytest.mark.parametrize("how", ["aborts", "dies", "stops"])
def test_pd_004_a_prefiller_that_fails_ends_its_decoders_wait_at_once(how: str) -> None:
    """100 requests wait for two prefillers, one of which fails; those of the other are answered."""

    async def look() -> None:
        # Nobody is looked at but the one that stops, so that the other is not thought silent on a busy machine.
        looks = {"health_interval_s": 3600, "health_timeout_s": 1.0} if how == "stops" else {}
        async with pairs("push", max_retries=0, **looks) as pair:
            bad, good = pair.prefillers
            if how == "stops":
                bad.prefill_s = 3600
            else:
                bad.faults = [Fault("status" if how == "aborts" else "cut", status=503) for _ in range(100)]
            body = {"messages": HI, "stream": True}
            asking = [asyncio.ensure_future(pair.router.http.post(CHAT, json=body)) for _ in range(100)]
            if how == "stops":
                await until(
                    lambda: bad.num_open and bad.num_open + sum(map(asyncio.Future.done, asking)) == 100
                )
                bad.is_frozen = True
                endpoint = next(each for each in pair.router.router.pool.members if each.port == bad.port)
                while endpoint.state is EndpointState.READY:
                    pair.router.router.monitor.look_now(endpoint)
                    await asyncio.sleep(0.01)
            answers = await asyncio.gather(*asking)
            refused = [answer for answer in answers if answer.status_code != 200]
            assert len(refused) == len(bad.asked) > 0 and len(good.asked) + len(bad.asked) == 100
            assert {answer.status_code for answer in refused} == {503 if how == "aborts" else 502}
            assert all(b"[DONE]" in answer.content for answer in answers if answer.status_code == 200)
            await until(lambda: pair.num_open == 0)
            assert figures(pair.router) == (0, 0)

    run(look())


def test_who_does_not_know_the_secret_of_a_request_gets_no_cache() -> None:
    async def look() -> None:
        async with pairs("push") as pair:
            for engine in pair.decoders:
                engine.prefill_s = 0.3
            asking = asyncio.ensure_future(pair.router.http.post(COMPLETIONS, json={"prompt": "Say: "}))
            await until(lambda: pair.decode_fields)
            (asked,) = [asked for engine in pair.decoders for asked in engine.asked]
            name = f"cmpl-{asked.headers['x-request-id']}-0"
            for path in ("/v1/metaserver", "/v1/metaserver?token=", "/v1/metaserver?token=guess"):
                response = await pair.router.http.post(
                    path, json={"request_id": name, "remote_host": "attacker"}
                )
                assert response.status_code == 404
            assert (await asking).status_code == 200
            (prefill,) = pair.prefill_fields
            assert prefill["kv_transfer_params"]["remote_host"] == "127.0.0.1"

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
def test_requests_of_one_client_id_are_not_mixed(connector: str) -> None:
    async def look() -> None:
        async with pairs(connector) as pair:
            prompts = [f"{n} Say: " for n in range(4)]
            answers = await asyncio.gather(
                *(
                    pair.router.http.post(
                        COMPLETIONS, json={"prompt": prompt, "echo": True}, headers={"x-request-id": "same"}
                    )
                    for prompt in prompts
                )
            )
            assert [one.json()["choices"][0]["text"] for one in answers] == [
                prompt + "".join(SCRIPT) for prompt in prompts
            ]
            assert {one.headers["x-request-id"] for one in answers} == {"same"}
            assert len(pair.prefill_fields) == 4

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("num_choices", [1, 2])
def test_a_clients_own_transfer_parameters_reach_no_engine(connector: str, num_choices: int) -> None:
    async def look() -> None:
        async with pairs(connector) as pair:
            params = {"do_remote_prefill": True, "remote_host": "attacker"}
            body = {"messages": HI, "n": num_choices, "kv_transfer_params": params}
            response = await pair.router.http.post(CHAT, json=body)
            assert response.status_code == 200, response.text
            asked = pair.prefill_fields + pair.decode_fields
            assert asked and "attacker" not in json.dumps(asked)

    run(look())


def test_decoders_that_ask_for_what_nobody_waits_for_get_404() -> None:
    async def look() -> None:
        async with pairs("push") as pair:
            response = await pair.router.http.post("/v1/metaserver", json={"request_id": "chatcmpl-x"})
            assert response.status_code == 404
            response = await pair.router.http.post("/v1/metaserver", content=b"[]")
            assert response.status_code == 404
            metaserver = pair.router.router.app.routes["/v1/metaserver"]
            assert isinstance(metaserver, Metaserver)
            metaserver.expect("known", ["chatcmpl-x"], lambda params: asyncio.sleep(0))
            for content, status in (
                (b"[]", 400),
                (b'{"request_id":"y"}', 404),
                (b'{"request_id":"chatcmpl-x"}', 200),
            ):
                response = await pair.router.http.post("/v1/metaserver?token=known", content=content)
                assert response.status_code == status

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
def test_pd_007_a_missing_role_is_503_with_retry_after(connector: str) -> None:
    async def look() -> None:
        decoder = StubEngine("decode")
        async with (
            stubs(decoder),
            routed(f"{decoder.url},role=decode", connector=connector, port=free_port()) as router,
        ):
            response = await router.http.post(CHAT, json={"messages": HI})
            assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
            assert figures(router) == (0, 0)

    run(look())


@pytest.mark.parametrize("connector", CONNECTORS)
def test_pd_018_clients_that_leave_at_any_time_leave_nothing_behind(connector: str) -> None:
    async def look() -> None:
        rng = random.Random(18)
        async with pairs(connector) as pair:
            for engine in (*pair.prefillers, *pair.decoders):
                engine.prefill_s, engine.step_s = 0.02, 0.005
            body = json.dumps({"messages": HI, "stream": True}).encode()
            head = b"POST %b HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(body))

            async def leave(after_s: float) -> None:
                _, writer = await asyncio.open_connection("127.0.0.1", pair.router.port)
                writer.write(head + body)
                await asyncio.sleep(after_s)
                writer.transport.abort()

            for _ in range(5):
                await asyncio.gather(*(leave(rng.uniform(0, 0.15)) for _ in range(30)))
            await until(lambda: pair.num_open == 0 and figures(pair.router) == (0, 0))
            for _ in range(20):
                assert b"[DONE]" in await pair.router.stream(CHAT, {"messages": HI})
            relay = pair.router.router.app._relay
            assert isinstance(relay, Relay) and relay.metaserver.num_waiting == 0

    run(look())


NAMES = ("p1", "p2", "d1", "d2")
EVENTS = [("+", "p1"), ("+", "d1"), ("-", "p1"), ("-", "d1"), ("+", "p2"), ("+", "d2")]
ORDERS = [
    order
    for order in itertools.permutations(EVENTS)
    if order.index(("+", "p1")) < order.index(("-", "p1"))
    and order.index(("+", "d1")) < order.index(("-", "d1"))
]


@pytest.mark.parametrize("connector", CONNECTORS)
def test_pd_007_pairs_follow_the_live_set_whatever_the_order_of_events(connector: str) -> None:
    async def look() -> None:
        engines = {name: StubEngine("prefill" if name[0] == "p" else "decode") for name in NAMES}
        settings = {"connector": connector, "port": free_port(), "endpoints_file": os.devnull}
        async with stubs(*engines.values()), routed(**settings) as router:
            pool = router.router.pool
            assert len(ORDERS) == 180
            for order in ORDERS[::15]:
                alive: dict[str, Endpoint] = {}
                for sign, name in order:
                    if sign == "+":
                        role = Role.PREFILL if name[0] == "p" else Role.DECODE
                        alive[name] = Endpoint(
                            f"{name}-{id(order)}", "127.0.0.1", engines[name].port, role=role
                        )
                        pool.add(alive[name])
                    else:
                        pool.remove(alive.pop(name))
                    response = await router.http.post(CHAT, json={"messages": HI})
                    roles = {each.role for each in alive.values()}
                    assert response.status_code == (200 if len(roles) == 2 else 503), (order, name)
                for endpoint in alive.values():
                    pool.remove(endpoint)

    run(look())
