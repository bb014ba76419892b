"""How a command reaches a server: the headers that it sends, the key among them, and how it checks https."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from qanat.cli.connection_flags import ConnectionFlags
from qanat.config.env import secret_of
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.verify.exchange import Exchange

NO_HEADER = "\r\n\0"


def headers_of(options: ConnectionFlags) -> dict[str, str]:
    """Headers of every request, the key's among them.

    Raises:
        ConfigError: one cannot be sent; its value is not shown.
    """
    key = secret_of(options.api_key_env)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for text in options.header:
        name, mark, value = text.partition("=")
        if not mark or not name or " " in name:
            raise ConfigError(f"--header {name}: NAME=VALUE is expected.", param="--header")
        headers = {known: one for known, one in headers.items() if known.lower() != name.lower()}
        headers[name] = value
    for name, value in headers.items():
        if not (name + value).isascii() or any(mark in name + value for mark in NO_HEADER):
            raise ConfigError(f"--header {name}: it holds what no header can carry.", param="--header")
    return headers


def key_of(variable: str | None) -> str | None:
    """The API key in a variable; None without a variable.

    Raises:
        ConfigError: it is not set, or cannot be sent.
    """
    if variable is None:
        return None
    key = secret_of(variable)
    if not key:
        raise ConfigError(f"--api-key-env: the variable {variable} is not set.", param="--api-key-env")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"--api-key-env: {variable} holds characters that no header can carry.", param="--api-key-env"
        )
    return key


def tls_of(options: ConnectionFlags) -> ssl.SSLContext:
    """How https is checked.

    Raises:
        ConfigError: the file of certificates cannot be read.
    """
    context = trust_of(options.ca_file)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trust_of(ca_file: str | None) -> ssl.SSLContext:
    """Trusts the certificates in a file; without one the system's.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--ca-file {ca_file}: {error.strerror or error}", param="--ca-file") from None


def exchange_with(url: str, key_variable: str | None, ca_file: str | None = None) -> Exchange:
    """Sends requests to the server at a URL.

    Args:
        url: of its root.
        key_variable: holds the API key.
        ca_file: certificates to trust for https; None for the system's.

    Raises:
        ConfigError: the address, the key or the file cannot be used.
    """
    from qanat.deploy.verify.address import read_address
    from qanat.deploy.verify.exchange import Exchange

    trust = trust_of(ca_file) if ca_file is not None else None
    return Exchange(read_address(url), key_of(key_variable), trust)
