"""Keys on every path, actions for operators only, CORS, and the limit on bodies."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError
from qanat.server.app import build_app
from qanat.server.cors import check_cors
from qanat.server.gate import ADMIN_PATHS, OPEN_PATHS, WATCH_PATHS
from qanat.server.keys import Keys
from tests.server.test_errors import refuse, still_serves
from tests.support.app_server import AppServer, serving

COMPLETIONS = "/v1/completions"
ENDLESS = {"prompt": "Story:", "max_tokens": 90_000, "ignore_eos": True}
"""Runs for seconds, so that whoever looks for it while it runs finds it."""
PUBLIC = {"/health", "/ping", "/ready", "/version", "/metrics"}
LOCKED = ServerOptions(api_key=("user-key", "other-key"), admin_api_key=("admin-key",))
PAGE = "https://page.example"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def locked() -> Iterator[AppServer]:
    with serving(LOCKED, max_model_len=100_000) as running:
        yield running
        running.wait_until_idle()


@pytest.fixture(scope="module")
def routes(locked: AppServer) -> list[tuple[str, str]]:
    """Every method and path of the application."""

    def collect() -> list[tuple[str, str]]:
        app = build_app(locked.scripted.engine, LOCKED)
        app.close()
        return [
            (method, route.path.replace("{model:path}", "scripted"))
            for route in app.routes
            for method in sorted(route.methods or {"GET", "POST"})
        ]

    return locked.in_loop(collect)


def test_the_lists_of_paths_name_routes(routes: list[tuple[str, str]]) -> None:
    paths = {path for _, path in routes}
    assert OPEN_PATHS == PUBLIC
    assert paths >= OPEN_PATHS | ADMIN_PATHS
    assert not OPEN_PATHS & (ADMIN_PATHS | WATCH_PATHS)
    assert len(paths) > 10


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong"), {"Authorization": "Bearer"}, {"Authorization": "user-key"}], ids=str
)
def test_every_route_is_guarded_unless_it_is_public(
    locked: AppServer, routes: list[tuple[str, str]], headers: dict[str, str]
) -> None:
    for method, path in [*routes, ("GET", "/nothing"), ("DELETE", COMPLETIONS), ("POST", "//v1/models")]:
        status = locked.http.request(method, path, headers=headers).status_code
        assert (status == 401) == (path not in PUBLIC), (method, path, status)


def test_every_route_knows_users_from_operators(locked: AppServer, routes: list[tuple[str, str]]) -> None:
    for method, path in routes:
        for key in LOCKED.api_key:
            status = locked.http.request(method, path, headers=bearer(key)).status_code
            assert status != 401 and (status == 403) == (path in ADMIN_PATHS | WATCH_PATHS), (
                method,
                path,
                status,
            )
        status = locked.http.request(method, path, headers=bearer("admin-key")).status_code
        assert status not in (401, 403), (method, path, status)


def test_refusals_say_what_is_missing(locked: AppServer, server: AppServer) -> None:
    body = {"request_id": "x"}
    wrong = locked.http.post("/abort", json=body)
    assert "admin key" in refuse(wrong, 401)["message"] and wrong.headers["www-authenticate"] == "Bearer"
    error = refuse(locked.http.post("/abort", json=body, headers=bearer("user-key")), 403)
    assert error["type"] == "permission_error" and error["code"] == "admin_key_required"
    # Where nobody needs a key, actions are still not for everyone.
    assert "--admin-api-key" in refuse(server.http.post("/abort", json=body), 403)["message"]


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (ServerOptions(api_key=("good", "")), "--api-key"),
        (ServerOptions(admin_api_key=(" ",)), "--admin-api-key"),
        (ServerOptions(api_key=("both",), admin_api_key=("both",)), "--admin-api-key"),
    ],
)
def test_keys_that_protect_nothing_are_refused(options: ServerOptions, flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Keys(options)
    assert caught.value.param == flag


def test_the_plan_holds_no_key(locked: AppServer) -> None:
    plan = locked.http.get("/v1/plan", headers=bearer("user-key"))
    assert plan.status_code == 200
    assert all(key not in plan.text for key in (*LOCKED.api_key, *LOCKED.admin_api_key))


def abort(server: AppServer, request_id: Any) -> httpx.Response:
    return server.http.post("/abort", json={"request_id": request_id}, headers=bearer("admin-key"))


@pytest.mark.parametrize("by", ["header", "field", "answer"])
@pytest.mark.parametrize("n", [1, 3])
def test_abort_ends_all_choices_of_a_request(locked: AppServer, by: str, n: int) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        headers = {**bearer("user-key"), **({"X-Request-Id": "a-b-1"} if by == "header" else {})}
        body = {**ENDLESS, "n": n, **({"request_id": "a-b-1"} if by != "header" else {})}
        future = pool.submit(locked.http.post, COMPLETIONS, json=body, headers=headers)
        other = pool.submit(
            locked.http.post, COMPLETIONS, json={**ENDLESS, "request_id": "other"}, headers=bearer("user-key")
        )
        locked.wait_until(lambda: locked.scripted.core.stats().num_running == n + 1)
        answer = abort(locked, "a-b-1" if by == "header" else "cmpl-a-b-1")
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"request_id": answer.json()["request_id"], "num_aborted": 1}
        choices = future.result(60).json()["choices"]
        assert [choice["finish_reason"] for choice in choices] == ["abort"] * n
        assert not other.done()
        assert abort(locked, "cmpl-other").json()["num_aborted"] == 1
        assert other.result(60).json()["choices"][0]["finish_reason"] == "abort"
    locked.wait_until_idle()


def test_abort_ends_a_stream_and_every_namesake(locked: AppServer) -> None:
    headers = {**bearer("user-key"), "X-Request-Id": "twin"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        futures = [
            pool.submit(locked.http.post, COMPLETIONS, json={**ENDLESS, "stream": True}, headers=headers)
            for _ in range(2)
        ]
        locked.wait_until(lambda: locked.scripted.core.stats().num_running == 2)
        assert abort(locked, "twin").json()["num_aborted"] == 2
        for future in futures:
            assert '"finish_reason":"abort"' in future.result(60).text
            assert future.result().text.endswith("data: [DONE]\n\n")
    locked.wait_until_idle()


def test_what_does_not_run_cannot_be_aborted(locked: AppServer) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    done = locked.http.post(COMPLETIONS, json=body, headers={**bearer("user-key"), "X-Request-Id": "done"})
    assert done.status_code == 200
    for request_id in ("done", "never", ""):
        assert refuse(abort(locked, request_id), 404, "request_id")["code"] == "request_not_found"
    refuse(abort(locked, 5), 400, "request_id")
    refuse(locked.http.post("/abort", json={}, headers=bearer("admin-key")), 400, "request_id")


def test_a_body_over_the_limit_is_refused_with_the_reason() -> None:
    with serving(ServerOptions(max_request_bytes=1000)) as server:
        for path in (COMPLETIONS, "/v1/chat/completions", "/tokenize"):
            error = refuse(server.post(path, {"prompt": "x" * 1000}), 413)
            assert "1000 bytes" in error["message"] and "--max-request-bytes" in error["message"]
        still_serves(server)


def preflight(server: AppServer, origin: str, method: str = "POST") -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    return server.http.options(COMPLETIONS, headers=headers)


def test_no_page_may_call_unless_it_is_listed(server: AppServer) -> None:
    assert preflight(server, PAGE).status_code == 405
    answer = server.http.get("/version", headers={"Origin": PAGE})
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("origins", [(PAGE, "https://b.example"), (f'["{PAGE}", "https://b.example"]',)])
def test_listed_pages_may_call(origins: tuple[str, ...]) -> None:
    options = ServerOptions(
        api_key=("user-key",),
        allowed_origins=origins,
        allowed_methods=("GET", "POST"),
        allow_credentials=True,
    )
    with serving(options) as server:
        asked = preflight(server, PAGE)
        assert asked.status_code == 200 and asked.headers["access-control-allow-origin"] == PAGE
        assert "authorization" in asked.headers["access-control-allow-headers"]
        assert preflight(server, "https://evil.example").status_code == 400
        assert preflight(server, PAGE, "DELETE").status_code == 400
        refused = server.http.post(COMPLETIONS, json={}, headers={"Origin": PAGE})
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == PAGE
        body = {"prompt": "x", "max_tokens": 2, "stream": True}
        answer = server.http.post(COMPLETIONS, json=body, headers={"Origin": PAGE, **bearer("user-key")})
        assert answer.text.endswith("data: [DONE]\n\n")
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
        other = server.http.get("/version", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (ServerOptions(allowed_origins=("*",), allow_credentials=True), "--allow-credentials"),
        (ServerOptions(allowed_origins=('["*"]',), allow_credentials=True), "--allow-credentials"),
        (ServerOptions(allowed_origins=("[1]",)), "--allowed-origins"),
        (ServerOptions(allowed_methods=("[GET",)), "--allowed-methods"),
    ],
)
def test_contradictions_are_found_before_the_start(options: ServerOptions, flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_cors(options)
    assert caught.value.param == flag
