"""Settings that fit together, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.core.errors import ConfigError
from qanat.router.config import RouterConfig, make_config
from qanat.router.model import Role
from qanat.router.options import RouterOptions


def made(
    *words: str, secrets: dict[str, str] | None = None, listed: Any = (), **options: Any
) -> RouterConfig:
    return make_config(RouterOptions(**options), words, listed, (secrets or {}).get)


def places(config: RouterConfig) -> list[tuple[str, str]]:
    return [(spec.name, spec.role.value) for spec in config.endpoints]


def test_words_flags_and_file_add_up() -> None:
    config = made("a:1", endpoint=("b:1,role=prefill",), listed=["c:1", {"url": "d:1", "role": "decode"}])
    assert places(config) == [("a:1", "any"), ("b:1", "prefill"), ("c:1", "any"), ("d:1", "decode")]


def test_the_flags_of_the_example_proxies() -> None:
    config = made(
        prefiller_hosts=("10.0.0.1", "10.0.0.2"),
        prefiller_ports=("8100", "8101"),
        decoder_hosts=("fd00::1", "10.0.0.4"),
        decoder_ports=("8200",),
    )
    assert places(config) == [
        ("10.0.0.1:8100", "prefill"),
        ("10.0.0.2:8101", "prefill"),
        ("[fd00::1]:8200", "decode"),
        ("10.0.0.4:8200", "decode"),
    ]
    assert config.endpoints[2].host == "fd00::1" and config.endpoints[2].role is Role.DECODE


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "no engine is named; name its URL"),
        ({"prefiller_hosts": ("a",)}, "--prefiller-hosts and --prefiller-ports belong together"),
        ({"decoder_ports": ("1",)}, "--decoder-hosts and --decoder-ports belong together"),
        ({"decoder_hosts": ("a", "b", "c"), "decoder_ports": ("1", "2")}, "names 3, --decoder-ports 2"),
        ({"decoder_hosts": ("a",), "decoder_ports": ("x",)}, "--decoder-ports: 'x' is no port"),
        ({"endpoint": ("a:1", "http://a:1/v1")}, "the endpoint a:1 is named twice"),
        ({"endpoint": ("a:1,name=x", "b:1,name=x")}, "the endpoint x is named twice"),
        ({"endpoint": ("a:1",), "api_key_env": "NONE"}, "--api-key-env: the variable NONE is not set"),
        ({"endpoint": ("a:1",), "ssl_certfile": "c"}, "--ssl-certfile and --ssl-keyfile belong together"),
        ({"endpoint": ("a:x",)}, "--endpoint a:x"),
    ],
)
def test_what_does_not_fit_is_said_with_its_flag(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        made(**options)


@pytest.mark.parametrize("listed", [[3], [{"role": "any"}], [["a:1"]]])
def test_entries_of_the_file_are_named_by_number(listed: Any) -> None:
    with pytest.raises(ConfigError, match="endpoints, entry 1:"):
        made(listed=listed)


def test_keys_come_from_variables_and_are_not_shown() -> None:
    secrets = {"C": "one, two,", "A": "three", "E": "four"}
    config = made("a:1", secrets=secrets, api_key_env="C", admin_key_env="A", engine_key_env="E")
    assert (config.client_keys, config.admin_key, config.engine_key) == (("one", "two"), "three", "four")
    assert not any(key in repr(config) for key in ("'one'", "three", "four"))
    with pytest.raises(ConfigError, match="no header can carry"):
        made("a:1", secrets={"A": "schlüssel"}, admin_key_env="A")


def test_nobody_needs_to_be_named_where_they_may_come_later() -> None:
    assert made(secrets={"A": "k"}, admin_key_env="A").endpoints == ()
    assert made(endpoints_dns=("engines:8000",)).endpoints == ()
