"""How many processes serve clients, and where several cannot."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.core.errors import ConfigError
from tests.config.test_replicas import settle


@pytest.mark.parametrize(
    ("wishes", "num_front_ends"),
    [
        ({}, 1),
        ({"api_server_count": 1}, 1),
        ({"api_server_count": 16, "num_cores": 1}, 16),
        ({"api_server_count": 2, "data_parallel_size": 4, "data_parallel_rank": 1}, 2),
    ],
)
def test_there_are_as_many_as_are_wished(wishes: dict[str, Any], num_front_ends: int) -> None:
    assert settle(**wishes)[0].num_front_ends == num_front_ends


@pytest.mark.parametrize(
    ("wishes", "part"),
    [
        ({"headless": True, "data_parallel_size": 2, "data_parallel_start_rank": 1}, "beside --headless"),
        ({"nnodes": 2, "node_rank": 1}, "beside --node-rank 1"),
        (
            {"data_parallel_size": 4, "data_parallel_size_local": 2, "num_cores": 4},
            "all replicas on this host",
        ),
    ],
)
def test_they_are_refused_where_they_have_nobody_to_serve_or_cannot_reach_all(
    wishes: dict[str, Any], part: str
) -> None:
    settle(**wishes)
    with pytest.raises(ConfigError, match=part) as caught:
        settle(**wishes, api_server_count=2)
    assert caught.value.param == "--api-server-count"
