"""The secret that the processes of one service on several hosts share: read from the environment, never shown."""

from __future__ import annotations

import hashlib
import ipaddress

from qanat.config.env import CLUSTER_KEY_VARIABLE, secret_of
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

MIN_CHARACTERS = 16


def cluster_secret(purpose: str) -> bytes | None:
    """32 bytes that follow from the cluster's key, different ones for each purpose; None if there is no key.

    Raises:
        ConfigError: the key is too short to be a secret.
    """
    text = secret_of(CLUSTER_KEY_VARIABLE)
    if not text:
        return None
    if len(text) < MIN_CHARACTERS:
        raise ConfigError(
            f"{CLUSTER_KEY_VARIABLE} is shorter than {MIN_CHARACTERS} characters, and so easily guessed. Make one with "
            "`openssl rand -hex 32`, the same for every process of the service.",
            param=CLUSTER_KEY_VARIABLE,
        )
    return hashlib.sha256(f"qanat {purpose}\0{text}".encode()).digest()


def missing_key_decision(address: str) -> Decision | None:
    """What to say of a service that talks over this address without a key; None on the loopback interface."""
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_loopback = address == "localhost"
    if is_loopback:
        return None
    why = (
        f"whoever reaches {address} may join the service and read its requests; give every process of it the same "
        f"{CLUSTER_KEY_VARIABLE} of at least {MIN_CHARACTERS} characters"
    )
    return Decision(CLUSTER_KEY_VARIABLE, None, "not encrypted", why)
