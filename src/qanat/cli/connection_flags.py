"""Flags of commands that reach a server: what `qanat.cli.connection` makes its headers and its checks of."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class ConnectionFlags:
    """Connection."""

    header: tuple[str, ...] = option(
        Kind.TEXTS, (), "Headers of every request, each as NAME=VALUE.", is_secret=True
    )
    api_key_env: str = option(
        Kind.TEXT, "OPENAI_API_KEY", "Variable that holds the API key; the key is never printed."
    )
    insecure: bool = option(Kind.SWITCH, False, "Do not check the certificate of https.")
    ca_file: str | None = option(
        Kind.TEXT, None, "Certificates (PEM) to trust for https. Default: the system's."
    )
