"""Which endpoints there should be, from several sources, and the pool made to follow."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from qanat.core.errors import ConfigError
from qanat.router.endpoint_text import EndpointSpec, read_endpoint, read_endpoint_mapping, wrong
from qanat.router.model import Endpoint
from qanat.router.pool import Pool

_LOG = logging.getLogger(__name__)
Place = tuple[str, int, bool, str]

FLAGS, ADMIN = "flags", "admin"
FILE_INTERVAL_S = 1.0


class Membership:
    """What each source wishes; the pool has whom any source wishes, and drains the others.

    An endpoint that was removed by the admin routes stays away until they add it again, or no source wishes it.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._wishes: dict[str, dict[Place, EndpointSpec]] = {}
        self._banned: set[Place] = set()

    def set(self, source: str, specs: Sequence[EndpointSpec]) -> None:
        """From now on this is all that the source wishes."""
        self._wishes[source] = {spec.place: spec for spec in specs}
        self._follow()

    def add(self, spec: EndpointSpec) -> bool:
        """An admin wishes it, over what other sources say of it; False if it was there, and is changed at most."""
        is_new = self.find(spec.place) is None
        self._banned.discard(spec.place)
        self._wishes.setdefault(ADMIN, {})[spec.place] = spec
        self._follow()
        return is_new

    def remove(self, endpoint: Endpoint, *, at_once: bool = False) -> None:
        """An admin wants it gone: after what runs on it, or at once."""
        place = place_of(endpoint)
        self._wishes.get(ADMIN, {}).pop(place, None)
        self._banned.add(place)
        self._follow()
        if at_once:
            self._pool.remove(endpoint, "an administrator removed it")

    def find(self, place: Place) -> Endpoint | None:
        """The endpoint that is there now, draining ones included."""
        return next((each for each in self._pool.members if place_of(each) == place), None)

    def _follow(self) -> None:
        wanted: dict[Place, EndpointSpec] = {}
        sources = sorted(self._wishes, key=lambda source: source != ADMIN)
        for source in sources:
            for place, spec in self._wishes[source].items():
                wanted.setdefault(place, spec)
        self._banned &= wanted.keys()
        present = {place_of(each): each for each in self._pool.members}
        for place, endpoint in present.items():
            if place not in wanted or place in self._banned:
                if not self._pool.members[endpoint].is_draining:
                    _LOG.info("endpoint %s is drained and removed", endpoint.name)
                    self._pool.drain(endpoint)
        for place, spec in wanted.items():
            if place in self._banned:
                continue
            if place in present and present[place] in self._pool.members:
                self._update(present[place], spec)
            else:
                self._add(spec)

    def _add(self, spec: EndpointSpec) -> None:
        endpoint = spec.make()
        if self._pool.find(endpoint.name) is not None:
            host = f"[{spec.host}]" if ":" in spec.host else spec.host
            endpoint.name = f"{host}:{spec.port}{spec.base_path}{'#tls' if spec.is_tls else ''}"
            if self._pool.find(endpoint.name) is not None:
                _LOG.error("endpoint %s: there is another of this name; it is left out", endpoint.name)
                return
        self._pool.add(endpoint)
        _LOG.info("endpoint %s is added, role %s", endpoint.name, endpoint.role.value)

    def _update(self, endpoint: Endpoint, spec: EndpointSpec) -> None:
        """What is known of it has changed, or it is wished again while it drains. Figures stay."""
        if self._pool.members[endpoint].is_draining:
            self._pool.drain(endpoint, False)
        if endpoint.role is not spec.role or endpoint.weight != spec.weight:
            _LOG.info("endpoint %s: role %s, weight %g", endpoint.name, spec.role.value, spec.weight)
            endpoint.role = spec.role
            endpoint.weight = spec.weight
            self._pool.refresh(endpoint)


def place_of(endpoint: Endpoint) -> Place:
    """What makes it this engine and no other; see EndpointSpec.place."""
    return endpoint.host, endpoint.port, endpoint.is_tls, endpoint.base_path


def read_endpoints_file(path: str, text: str) -> list[EndpointSpec]:
    """The endpoints of a file: one a line, where # begins a comment, or a YAML list, bare or under `endpoints`.

    Raises:
        ConfigError: naming the file and the entry.
    """
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    filled = [(number, line) for number, line in enumerate(lines, 1) if line]
    if filled and (filled[0][1][0] in "-[{" or filled[0][1].startswith("endpoints")):
        return _of_yaml(path, text)
    return [read_endpoint(line, f"{path}, line {number}:") for number, line in filled]


def _of_yaml(path: str, text: str) -> list[EndpointSpec]:
    import yaml

    try:
        values: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no valid YAML: {error}", param="--endpoints-file") from None
    if isinstance(values, dict):
        values = values.get("endpoints")
    if not isinstance(values, list):
        raise ConfigError(f"{path}: must be a list of endpoints.", param="--endpoints-file")
    specs = []
    for number, value in enumerate(values, 1):
        where = f"{path}, entry {number}:"
        if isinstance(value, dict):
            specs.append(read_endpoint_mapping(value, where))
        elif isinstance(value, str):
            specs.append(read_endpoint(value, where))
        else:
            raise wrong(where, repr(value), "it is neither a text nor a mapping")
    return specs


class FileSource:
    """A file whose content is the wish; a broken or missing one leaves everything as it was."""

    def __init__(self, path: str, membership: Membership) -> None:
        self._path = path
        self._membership = membership
        self._content: bytes | None = None
        self._complaint = ""

    def read(self) -> None:
        """Reads it for the first time.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            content = Path(self._path).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"--endpoints-file {self._path}: {error.strerror or error}.", param="--endpoints-file"
            ) from None
        self._take(content)

    def _take(self, content: bytes) -> None:
        self._content = content
        text = content.decode("utf-8", "replace")
        self._membership.set(f"file {self._path}", read_endpoints_file(self._path, text))

    async def look(self) -> None:
        """Follows it if its content has changed."""
        try:
            content = await asyncio.to_thread(Path(self._path).read_bytes)
            if content != self._content:
                self._take(content)
            self._complaint = ""
        except (OSError, ConfigError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _LOG.error("the endpoints stay as they were: %s", error)


class DnsSource:
    """A name whose addresses are the wish; a look-up that fails leaves everything as it was."""

    def __init__(self, text: str, membership: Membership) -> None:
        self._spec = read_endpoint(text, "--endpoints-dns")
        if self._spec.is_tls:
            raise wrong(
                "--endpoints-dns", text, "certificates name hosts, and this gives addresses; take http"
            )
        self._text = text
        self._membership = membership
        self._hosts: frozenset[str] = frozenset()
        self._complaint = ""

    async def look(self) -> None:
        """Looks the name up and follows it."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._spec.host, self._spec.port, type=socket.SOCK_STREAM)
        except OSError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _LOG.error("%s cannot be looked up; its endpoints stay as they were: %s", self._text, error)
            return
        self._complaint = ""
        hosts = frozenset(str(entry[4][0]) for entry in found)
        if hosts != self._hosts:
            self._hosts = hosts
            self._membership.set(f"dns {self._text}", [self._spec.at(host) for host in sorted(hosts)])


async def repeat(look: Callable[[], Awaitable[None]], interval_s: float) -> None:
    """Looks again and again, until it is cancelled; a fault of one look does not end the looks."""
    while True:
        try:
            await look()
        except Exception:
            _LOG.exception("a look at where endpoints come from failed")
        await asyncio.sleep(interval_s)
