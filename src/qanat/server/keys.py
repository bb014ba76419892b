"""The keys that callers are known by: those of flags, and those of a file that is read again when it changes."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from pathlib import Path

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError
from qanat.server.caller import Caller
from qanat.server.keys_file import FLAG, Entries, Rules, read_keys_file, warn_of_readers

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""How old the last look at the file may be when a request comes."""

Stamp = tuple[int, int, int, int]


class Keys:
    """Finds the caller of a key. Only digests of keys are held.

    The file is looked at when a request comes, at most once per CHECK_INTERVAL_S. A changed one is read in a thread,
    and requests with a key wait for that: none is judged by keys that are known to be old. A file that cannot be used
    is logged and left aside: the keys that were read last stay. Belongs to one event loop.

    Args:
        options: the flags.
        rules: what the file is checked against beside its own shape.
        clock: monotonic seconds.

    Attributes:
        anonymous: who may pass without a key, where none is asked for.
        is_required: a key is asked for on every path that is not open.

    Raises:
        ConfigError: a key is empty, so that a request without one would have it; two callers have the same; or the
            file is wrong.
    """

    def __init__(
        self,
        options: ServerOptions,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.anonymous = Caller(may_resume=options.allow_resume)
        self.is_required = bool(options.api_key) or options.api_keys_file is not None
        self._may_all_resume = options.allow_resume
        self._clock = clock
        self._flag_entries = _flag_entries(options)
        self._entries = self._flag_entries
        self._path = options.api_keys_file
        self._rules = rules or Rules()
        self._stamp: Stamp | None = None
        self._looked_s = clock()
        self._reading: asyncio.Task[None] | None = None
        if self._path is not None:
            self._stamp = _stamp(self._path)
            self._entries = self._with_file(self._path)

    @property
    def has_admins(self) -> bool:
        """True if somebody may use the paths for operators."""
        return any(caller.is_admin for _, caller in self._entries)

    async def find(self, key: str) -> Caller | None:
        """Whose key this is, as an HTTP header spells it (one character a byte); None if nobody's.

        All keys are compared, each in constant time, so that timing tells nothing about any of them.
        """
        await self._refresh()
        digest = hashlib.sha256(key.encode("latin-1", "replace")).digest()
        found: Caller | None = None
        for known, caller in self._entries:
            if hmac.compare_digest(digest, known):
                found = caller
        return found

    async def _refresh(self) -> None:
        """Reads the file again if it changed."""
        if self._reading is None:
            if self._path is None or self._clock() - self._looked_s < CHECK_INTERVAL_S:
                return
            self._looked_s = self._clock()
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._reading = asyncio.create_task(self._read(self._path))
        await asyncio.shield(self._reading)

    async def _read(self, path: str) -> None:
        try:
            self._entries = await asyncio.to_thread(self._with_file, path)
        except (ConfigError, OSError) as error:  # the latter if it goes away meanwhile
            log.error("The keys file changed and cannot be used; the old keys stay: %s", error)
        else:
            log.info("The keys file changed; %d keys are in use.", len(self._entries))
        finally:
            self._reading = None

    def _with_file(self, path: str) -> Entries:
        entries = read_keys_file(path, self._rules)
        flag_digests = {digest for digest, _ in self._flag_entries}
        for digest, caller in entries:
            if digest in flag_digests:
                raise ConfigError(
                    f"{FLAG} {path}: the key of {caller.name} is given by a flag too; leave one out.",
                    param=FLAG,
                )
        warn_of_readers(path)
        if self._may_all_resume:
            entries = [(digest, dataclasses.replace(caller, may_resume=True)) for digest, caller in entries]
        return [*self._flag_entries, *entries]


def _stamp(path: str) -> Stamp | None:
    """What tells a changed file: times, size, and which file it is, as links may be switched; None if it is gone."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _flag_entries(options: ServerOptions) -> Entries:
    """The keys of --api-key and --admin-api-key, which have numbers for names."""
    for flag, keys in (("--api-key", options.api_key), ("--admin-api-key", options.admin_api_key)):
        if not all(key.strip() for key in keys):
            raise ConfigError(f"{flag} is empty; give a key, or leave the flag out.", param=flag)
    if set(options.api_key) & set(options.admin_api_key):
        raise ConfigError("--admin-api-key must differ from every --api-key.", param="--admin-api-key")
    users = [
        (_digest_of(key), Caller(f"api-key-{number}", may_resume=options.allow_resume))
        for number, key in enumerate(options.api_key, 1)
    ]
    admins = [
        (_digest_of(key), Caller(f"admin-key-{number}", is_admin=True, may_resume=True))
        for number, key in enumerate(options.admin_api_key, 1)
    ]
    return [*users, *admins]


def _digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
