"""The keys that callers are known by."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError
from qanat.server.caller import ANONYMOUS, Caller


class Keys:
    """Finds the caller of a key. Only digests of keys are held.

    Args:
        entries: digest of each key with the caller who has it.
        anonymous: who may pass without a key.

    Attributes:
        anonymous: see above.
    """

    def __init__(self, entries: Sequence[tuple[bytes, Caller]], anonymous: Caller = ANONYMOUS) -> None:
        self._entries = list(entries)
        self.anonymous = anonymous

    @classmethod
    def of(cls, options: ServerOptions) -> Keys:
        """As the flags say.

        Raises:
            ConfigError: see `check_keys`.
        """
        check_keys(options)
        may_resume = options.allow_resume
        users = [
            (digest_of(key), Caller(f"api-key-{number}", may_resume=may_resume))
            for number, key in enumerate(options.api_key, 1)
        ]
        admins = [
            (digest_of(key), Caller(f"admin-key-{number}", is_admin=True, may_resume=True))
            for number, key in enumerate(options.admin_api_key, 1)
        ]
        return cls([*users, *admins], Caller(may_resume=may_resume))

    @property
    def has_users(self) -> bool:
        """True if a key is asked for on every path that is not open."""
        return any(not caller.is_admin for _, caller in self._entries)

    @property
    def has_admins(self) -> bool:
        """True if somebody may use the paths for operators."""
        return any(caller.is_admin for _, caller in self._entries)

    def find(self, key: str) -> Caller | None:
        """Whose key this is; None if nobody's.

        All keys are compared, each in constant time, so that timing tells nothing about any of them.
        """
        digest = digest_of(key)
        found: Caller | None = None
        for known, caller in self._entries:
            if hmac.compare_digest(digest, known):
                found = caller
        return found


def check_keys(options: ServerOptions) -> None:
    """Checks the keys, before anything is loaded.

    Raises:
        ConfigError: a key is empty, so that a request without one would have it, or a user has an operator's key.
    """
    for flag, keys in (("--api-key", options.api_key), ("--admin-api-key", options.admin_api_key)):
        if not all(key.strip() for key in keys):
            raise ConfigError(f"{flag} is empty; give a key, or leave the flag out.", param=flag)
    if set(options.api_key) & set(options.admin_api_key):
        raise ConfigError("--admin-api-key must differ from every --api-key.", param="--admin-api-key")


def digest_of(key: str) -> bytes:
    """What is held of a key."""
    return hashlib.sha256(key.encode()).digest()
