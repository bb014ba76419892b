"""The secret of a service on several hosts: where it comes from, what follows from it, and that it is never shown."""

from __future__ import annotations

import pytest

from qanat.config.cluster_key import cluster_secret, missing_key_decision
from qanat.config.env import CLUSTER_KEY_VARIABLE, read_environment
from qanat.core.errors import ConfigError

KEY = "correct horse battery staple"


def test_secrets_follow_from_key_and_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, KEY)
    secret = cluster_secret("replicas")
    assert secret is not None and len(secret) == 32
    assert secret == cluster_secret("replicas") != cluster_secret("ranks")
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, KEY + ".")
    assert cluster_secret("replicas") != secret


@pytest.mark.parametrize("text", [None, ""])
def test_no_key_is_no_secret(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLUSTER_KEY_VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(CLUSTER_KEY_VARIABLE, text)
    assert cluster_secret("replicas") is None


def test_a_short_key_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, KEY[:15])
    with pytest.raises(ConfigError, match="at least|shorter than 16") as raised:
        cluster_secret("replicas")
    assert KEY[:15] not in raised.value.message


def test_the_key_stands_in_no_decision() -> None:
    found = read_environment({CLUSTER_KEY_VARIABLE: KEY})
    assert not found.flags and not found.honoured and not found.decisions


@pytest.mark.parametrize(
    ("address", "is_told"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("127.8.0.1", False),
        ("10.0.0.1", True),
        ("0.0.0.0", True),
        ("::", True),
        ("head.example", True),
    ],
)
def test_an_open_address_without_a_key_is_told(address: str, is_told: bool) -> None:
    decision = missing_key_decision(address)
    assert (decision is not None) is is_told
    assert decision is None or address in str(decision)
