"""Wishes about how the server is run: what happens when it is stopped and when its engine dies."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class OperationOptions:
    """Operation."""

    shutdown_timeout: int = option(
        Kind.COUNT,
        25,
        "Seconds that running requests may go on after SIGTERM or SIGINT; what runs then still ends with an error. A "
        "second signal ends them at once. vLLM's default is 0.",
        minimum=0,
        maximum=86_400,
    )
    restart_engine: bool = option(
        Kind.SWITCH,
        False,
        "Start a new engine process when the engine's dies, instead of ending the server; what ran then ends with an "
        "error.",
    )
    max_engine_restarts: int = option(
        Kind.COUNT,
        5,
        "Restarts of the engine within ten minutes after which the server ends, with --restart-engine.",
        minimum=1,
        maximum=1000,
    )
