"""Wishes about who may use the server, and how much."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """Access."""

    api_key: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Keys of which a client must send one as a bearer token. Default: none needed.",
        is_secret=True,
    )
    admin_api_key: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "Keys for actions on the server such as /abort, sent as a bearer token and good for all other paths too. "
        "Default: nobody may take those actions.",
        is_secret=True,
    )
    api_keys_file: str | None = option(
        Kind.TEXT,
        None,
        "YAML or JSON file of keys with names, limits, priorities and models, read again when it changes; see Limits.",
    )
    request_timeout_s: float | None = option(
        Kind.NUMBER,
        None,
        "Seconds that a request may take which does not say so itself (field timeout); it then ends with status 408. "
        "Default: no bound.",
        minimum=0.001,
    )
    web_page: bool = option(
        Kind.SWITCH,
        True,
        "Serve a page at / with a chat and a live view of the server. Its files need no key; what it asks for does.",
    )
    allow_resume: bool = option(
        Kind.SWITCH,
        False,
        "Let everybody continue the output of an earlier request with the field resume. Default: admin keys only.",
    )
