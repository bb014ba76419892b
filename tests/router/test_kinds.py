"""Which kind of engine it is, also where its models are told to clients' keys alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from qanat.router.model import EngineKind
from tests.router.routing import COMPLETIONS, Routed, routed, run
from tests.router.scripted_engine import DONE, Said, ScriptedEngine, scripted, text
from tests.router.test_relay import until

KEY = "a-key-of-a-client"
BODY = {"model": "m", "prompt": "p", "stream": True}


def say(fields: Any) -> Said:
    return Said([text(" a", "stop", token_ids=[1]), DONE])


def kind_of(router: Routed) -> EngineKind:
    return next(iter(router.router.pool.members)).kind


async def ask(router: Routed, key: str) -> int:
    response = await router.http.post(COMPLETIONS, json=BODY, headers={"authorization": f"Bearer {key}"})
    return response.status_code


def test_a_clients_key_that_the_engine_takes_tells_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    async def look() -> None:
        engine = ScriptedEngine(say, owner="qanat", key=KEY)
        async with scripted(engine), routed(engine.url) as router:
            await until(lambda: "--engine-key-env" in caplog.text)
            assert kind_of(router) is EngineKind.UNKNOWN and engine.model_keys == [""]
            for _ in range(3):
                assert await ask(router, "wrong") == 401
            await until(lambda: "wrong" in engine.model_keys)
            assert kind_of(router) is EngineKind.UNKNOWN
            assert await ask(router, KEY) == 200
            await until(lambda: kind_of(router) is EngineKind.QANAT)
            assert await ask(router, KEY) == 200
            assert "return_token_ids" not in engine.asked[0] and engine.asked[1]["return_token_ids"] is True
            assert engine.model_keys == ["", "wrong", KEY]
            assert (await router.http.get("/v1/models")).status_code == 401

    with caplog.at_level(logging.DEBUG):
        run(look())
    assert caplog.text.count("--engine-key-env") == 1
    assert KEY not in caplog.text and "wrong" not in caplog.text


@pytest.mark.parametrize("has_engine_key", [True, False])
def test_keys_that_the_router_checks_itself_go_to_no_engine(has_engine_key: bool) -> None:
    secrets = {"CLIENTS": KEY, "ENGINES": "another"}
    options: dict[str, Any] = {
        "api_key_env": "CLIENTS",
        **({"engine_key_env": "ENGINES"} if has_engine_key else {}),
    }

    async def look() -> None:
        engine = ScriptedEngine(say, owner="qanat", key=KEY)
        async with scripted(engine), routed(engine.url, secrets=secrets, **options) as router:
            await until(lambda: engine.model_keys)
            assert await ask(router, KEY) == 401
            await until(lambda: not router.router.monitor.models.num_asking)
            assert set(engine.model_keys) == {"another" if has_engine_key else ""}

    run(look())


def test_an_engine_of_no_known_kind_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def look() -> None:
        named, other = ScriptedEngine(say, owner="somebody"), ScriptedEngine(say, owner="somebody")
        async with scripted(named, other), routed(named.url, f"{other.url},kind=vllm") as router:
            await until(lambda: named.model_keys and other.model_keys and "kind=qanat" in caplog.text)
            for endpoint in router.router.pool.members:
                await router.router.monitor.models.read(endpoint)
            assert caplog.text.count("kind=qanat") == 1
            assert f"endpoint 127.0.0.1:{named.port}" in caplog.text

    run(look())


def test_keys_are_tried_a_bounded_number_of_times() -> None:
    async def look() -> None:
        engine = ScriptedEngine(say, owner="qanat", key=KEY)
        async with scripted(engine), routed(engine.url) as router:
            await until(lambda: engine.model_keys)
            for number in range(80):
                await ask(router, f"wrong-{number}")
            await until(lambda: not router.router.monitor.models.num_asking)
            assert len(engine.model_keys) < 40

    run(look())
