from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import InvalidRequestError
from qanat.server.pinning import pinned_rank
from tests.support.app_server import AppServer

BODIES = {
    "/v1/completions": {"prompt": "x", "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("rank", "status", "part"),
    [("0", 200, ""), ("1", 400, "there is: 0"), ("-1", 400, "number of a replica"), ("", 400, "got ''")],
)
def test_the_header_chooses_a_replica(
    server: AppServer, path: str, rank: str, status: int, part: str
) -> None:
    url = f"{server.url}{path}"
    response = httpx.post(url, json=BODIES[path], headers={"X-data-parallel-rank": rank}, timeout=60)
    assert response.status_code == status
    if part:
        error = response.json()["error"]
        assert part in error["message"] and error["type"] == "invalid_request_error"


@given(st.binary(max_size=30))
def test_any_header_is_a_rank_or_refused(value: bytes) -> None:
    scope = {"headers": [(b"x-data-parallel-rank", value)]}
    try:
        rank = pinned_rank(scope)
    except InvalidRequestError as error:
        assert error.param == "X-data-parallel-rank"
    else:
        assert rank is not None and value.isdigit() and rank == int(value)


def test_without_the_header_any_may_compute_it() -> None:
    assert pinned_rank({"headers": []}) is None
