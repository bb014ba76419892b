"""Which paths and methods of engines are open to clients, and which requests may be sent twice."""

from __future__ import annotations

import re

from qanat.router.errors import MethodError, UnknownPathError
from qanat.router.model import Call

_STATELESS = frozenset(
    "/v1/completions /v1/chat/completions /v1/embeddings /v1/messages /v1/messages/count_tokens /v1/score "
    "/v1/rerank /v1/plan /v1/audio/transcriptions /v1/audio/translations /v2/rerank /tokenize /detokenize "
    "/pooling /classify /score /rerank".split()
)
POSTED = _STATELESS | {"/v1/responses", "/invocations"}
READ = frozenset(("/v1/models", "/version"))
LABELLED = POSTED | READ
"""Paths that metrics name; clients' inventions would be labels without end."""
_MODEL = re.compile(r"/v1/models(/[A-Za-z0-9_.:@+~-]+)+")


def is_models(path: str) -> bool:
    """The path of the list of models, or of one whose name cannot be taken for another path."""
    is_one = _MODEL.fullmatch(path) is not None
    return path == "/v1/models" or (is_one and not {".", ".."} & set(path.split("/")))


def check_engine_route(call: Call) -> None:
    """Passes what clients may ask of an engine. The list is closed: a path nobody thought of may change an engine.

    Raises:
        UnknownPathError: no such path, or one that is not open to clients.
        MethodError: the path does not take this method.
    """
    path = call.path
    if path in POSTED:
        if call.method != "POST":
            raise MethodError(f"{path} takes POST")
    elif path in READ or is_models(path):
        if call.method not in ("GET", "HEAD"):
            raise MethodError(f"{path} takes GET")
    else:
        raise UnknownPathError(
            f"there is no path {path} here; docs/router.md lists those of engines, the router's are under /router"
        )


def is_repeatable(call: Call) -> bool:
    """An engine that may have seen the request already leaves nothing behind that a second one would double."""
    return call.method in ("GET", "HEAD") or call.path in _STATELESS
