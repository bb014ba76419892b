"""/usage and the metrics of keys: each sees its own, operators see all, and names come from the keys file only."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from qanat.config.engine_config import ServerOptions
from qanat.server.accounts import Accounts
from qanat.server.caller import Caller
from qanat.server.usage import key_metrics
from tests.server.test_limits import COMPLETIONS, ask
from tests.support.app_server import AppServer, serving

KEYS = """
keys:
- {name: alice, key: alice-key}
- {name: bob, key: bob-key, max_concurrency: 1, tokens_per_minute: 100000}
- {name: boss, key: boss-key, admin: true}
"""
NOTHING = {
    "requests": 0,
    "running": 0,
    "waiting": 0,
    "prompt_tokens": 0,
    "output_tokens": 0,
    "cached_tokens": 0,
    "refused": {},
}


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    path.write_text(KEYS)
    path.chmod(0o600)
    with serving(ServerOptions(api_keys_file=str(path), api_key=("flag-key",))) as running:
        yield running
        running.wait_until_idle()


def usage(server: AppServer, key: str) -> dict[str, dict[str, Any]]:
    """The report's entries by name, without the limits."""
    body = server.http.get("/usage", headers={"Authorization": f"Bearer {key}-key"}).json()
    assert set(body) == {"since", "keys"} and body["since"] > 1_700_000_000
    return {
        entry["name"]: {name: value for name, value in entry.items() if name not in ("name", "limits")}
        for entry in body["keys"]
    }


def test_requests_and_tokens_are_counted_as_answers_count_them(server: AppServer) -> None:
    assert usage(server, "alice") == {"alice": NOTHING}
    server.say(["a", "b", "c", "STOP", "d"])
    bodies: list[dict[str, Any]] = [
        {"prompt": "abcd", "max_tokens": 3},
        {"prompt": ["ab", "cde"], "max_tokens": 2, "n": 2},
        {"prompt": "x", "max_tokens": 1, "stream": True},
    ]
    answers = [ask(server, "alice", **body) for body in bodies]
    counted = [answer.json()["usage"] for answer in answers[:2]]
    entry = usage(server, "alice")["alice"]
    assert entry["requests"] == 3
    assert entry["prompt_tokens"] == sum(one["prompt_tokens"] for one in counted) + 1
    assert entry["output_tokens"] == sum(one["completion_tokens"] for one in counted) + 1 == 3 + 8 + 1
    assert (entry["running"], entry["waiting"], entry["refused"]) == (0, 0, {})


def test_each_sees_its_own_and_an_admin_all(server: AppServer) -> None:
    for key in ("alice", "bob", "flag"):
        assert ask(server, key).status_code == 200
    assert set(usage(server, "alice")) == {"alice"}
    assert set(usage(server, "flag")) == {"api-key-1"}
    seen = usage(server, "boss")
    assert set(seen) == {"alice", "api-key-1", "bob", "boss"}
    assert seen["bob"]["requests"] == 1 and seen["boss"] == NOTHING


def test_running_and_waiting_requests_and_refusals_show(server: AppServer) -> None:
    server.in_loop(server.scripted.client.hold)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, server, "bob")
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 1)
        assert [ask(server, "bob").status_code for _ in range(2)] == [429, 429]
        assert (
            ask(server, "bob", max_tokens=-1).status_code == 429
        )  # bounds come before the body is looked at
        assert ask(server, "alice", max_tokens=-1).status_code == 400
        entry = usage(server, "bob")["bob"]
        assert (entry["requests"], entry["running"], entry["waiting"]) == (1, 1, 1)
        assert entry["refused"] == {"rate_limit_exceeded": 3}
        assert usage(server, "alice")["alice"]["refused"] == {"invalid_request_error": 1}
        server.in_loop(server.scripted.client.release)
        assert first.result(60).status_code == 200
    entry = usage(server, "bob")["bob"]
    assert (entry["requests"], entry["running"], entry["waiting"]) == (1, 0, 0)


def test_limits_are_reported(server: AppServer) -> None:
    body = server.http.get("/usage", headers={"Authorization": "Bearer bob-key"}).json()
    assert body["keys"][0]["limits"] == {
        "max_concurrency": 1,
        "tokens_per_minute": 100_000,
        "requests_per_minute": None,
    }


def test_without_keys_there_is_one_account_of_everybody() -> None:
    with serving() as server:
        server.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 1})
        (entry,) = server.http.get("/usage").json()["keys"]
        assert (entry["name"], entry["requests"], entry["prompt_tokens"]) == ("", 1, 3)
        assert 'key="' not in server.http.get("/metrics").text
        server.wait_until_idle()


def key_samples(server: AppServer, key: str) -> dict[tuple[str, str, str], float]:
    """What /metrics tells this key of keys, as Prometheus reads it: value by name, key and code."""
    headers = {"Authorization": f"Bearer {key}-key"} if key else {}
    text = server.http.get("/metrics", headers=headers).text
    assert "vllm:num_requests_running" in text
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, sample.labels["key"], sample.labels.get("code", "")): sample.value
        for family in families
        for sample in family.samples
        if "key" in sample.labels
    }


def test_metrics_tell_admins_of_keys_with_names_and_of_no_others(server: AppServer) -> None:
    for key in ("alice", "flag"):
        assert ask(server, key, prompt="abc", max_tokens=1).status_code == 200
    assert ask(server, "alice", max_tokens=-1).status_code == 400
    assert key_samples(server, "boss") == {
        ("qanat:key_requests_total", "alice", ""): 1,
        ("qanat:key_prompt_tokens_total", "alice", ""): 3,
        ("qanat:key_generation_tokens_total", "alice", ""): 1,
        ("qanat:key_cached_tokens_total", "alice", ""): 0,
        ("qanat:key_requests_running", "alice", ""): 0,
        ("qanat:key_requests_waiting", "alice", ""): 0,
        ("qanat:key_requests_refused_total", "alice", "invalid_request_error"): 1,
    }


@pytest.mark.parametrize("key", ["", "nobodys", "alice", "flag"])
def test_metrics_tell_nobody_else_of_keys(server: AppServer, key: str) -> None:
    assert ask(server, "alice").status_code == 200
    assert key_samples(server, key) == {}
    assert "alice" not in server.http.get("/metrics").text


def test_many_keys_are_told_line_by_line() -> None:
    accounts = Accounts()
    for number in range(2000):
        account = accounts.of(Caller(f"key-{number}", is_named=True))
        account.num_prompt_tokens = 10**15 + number
        account.refused["rate_limit_exceeded"] = number
    families = {
        family.name: family for family in text_string_to_metric_families(key_metrics(accounts).decode())
    }
    assert len(families) == 7
    tokens = {sample.labels["key"]: sample.value for sample in families["qanat:key_prompt_tokens"].samples}
    assert tokens == {f"key-{number}": 10**15 + number for number in range(2000)}
    assert sum(sample.value for sample in families["qanat:key_requests_refused"].samples) == sum(range(2000))
