"""Which web pages may call this server from a browser: none, unless their origins are listed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError

EXPOSED_HEADERS = ("X-Request-Id", "Retry-After")
"""Headers of answers that scripts in a browser may read."""


def with_cors(app: ASGIApp, options: ServerOptions) -> ASGIApp:
    """The application with CORS headers on every answer, also on refusals; itself if no origin is allowed.

    Raises:
        ConfigError: see `check_cors`.
    """
    check_cors(options)
    origins = _listed(options.allowed_origins, "--allowed-origins")
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=_listed(options.allowed_methods, "--allowed-methods") or ["*"],
        allow_headers=_listed(options.allowed_headers, "--allowed-headers") or ["*"],
        allow_credentials=options.allow_credentials,
        expose_headers=EXPOSED_HEADERS,
    )


def check_cors(options: ServerOptions) -> None:
    """Checks the flags, before anything is loaded.

    Raises:
        ConfigError: a list cannot be read, or every page of the web could act in the name of a visitor.
    """
    origins = _listed(options.allowed_origins, "--allowed-origins")
    _listed(options.allowed_methods, "--allowed-methods")
    _listed(options.allowed_headers, "--allowed-headers")
    if options.allow_credentials and "*" in origins:
        raise ConfigError(
            "--allow-credentials with --allowed-origins * would let any web page act with a visitor's cookies and "
            "client certificate. List the origins.",
            param="--allow-credentials",
        )


def _listed(values: Sequence[str], flag: str) -> list[str]:
    """The values; one that is a JSON list, as vLLM's command lines have it, stands for its elements."""
    if len(values) != 1 or not values[0].lstrip().startswith("["):
        return list(values)
    try:
        parsed = json.loads(values[0])
    except ValueError:
        parsed = None
    if not isinstance(parsed, list) or not all(isinstance(item, str) for item in parsed):
        raise ConfigError(f"{flag} {values[0]} is not a JSON list of texts.", param=flag)
    return parsed
