"""Where a service is, read from what a user types."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from qanat.core.errors import ConfigError

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """Root of a service.

    Attributes:
        is_tls: https.
        host: name or IP address, without the brackets of IPv6.
        port: TCP port.
        path: what stands before /v1, without a slash at the end; mostly empty.
    """

    is_tls: bool
    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        return f"http{'s' if self.is_tls else ''}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port as they stand in a URL and in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def read_address(text: str) -> Address:
    """The address in a URL; `/v1` at its end may be there or not.

    Raises:
        ConfigError: it is no http or https URL, or has parts that mean nothing here.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"URL {text}: {error}.", param="URL") from None
    if parts.scheme not in DEFAULT_PORTS or not host:
        hint = f"; did you mean http://{text}?" if "://" not in text and text and " " not in text else ""
        raise ConfigError(f"URL {text} is no address such as http://127.0.0.1:8000{hint}", param="URL")
    if parts.username or parts.password:
        raise ConfigError(
            "a key does not belong in the URL; name its variable with --api-key-env.", param="URL"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"URL {text}: leave out what stands behind ? or #.", param="URL")
    if not (host + parts.path).isascii() or any(character <= " " for character in host + parts.path):
        raise ConfigError(f"URL {text}: only printable ASCII letters can stand in it.", param="URL")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Address(parts.scheme == "https", host, port or DEFAULT_PORTS[parts.scheme], path)
