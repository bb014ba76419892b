"""Who sends a request: what the gate found out from the key, for everything behind it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

CALLER_KEY = "qanat.caller"
"""Where the ASGI scope holds the `Caller`."""


@dataclass(frozen=True)
class Caller:
    """The owner of a request and what it may do.

    Attributes:
        name: of the key; "" where no key is asked for. Requests of one name share limits, turns and counts.
        is_named: the name was given by the operator, so that reports may show it.
        is_admin: may do what concerns others.
        may_resume: may continue the output of an earlier request with `resume`.
        priority: of its requests under --scheduling-policy priority; lower runs first.
        models: served names that it may use; None for all.
        max_concurrency: generation requests at a time; None for any number.
        tokens_per_minute: prompt and output tokens; None for any number.
        requests_per_minute: generation requests; None for any number.
    """

    name: str = ""
    is_named: bool = False
    is_admin: bool = False
    may_resume: bool = False
    priority: int = 0
    models: frozenset[str] | None = None
    max_concurrency: int | None = None
    tokens_per_minute: int | None = None
    requests_per_minute: int | None = None

    def may_use(self, model: str) -> bool:
        """True if it may see and use this served name."""
        return self.models is None or model in self.models


def caller_of(scope: Scope) -> Caller:
    """The caller that the gate has put into this scope."""
    caller = scope[CALLER_KEY]
    assert isinstance(caller, Caller)
    return caller
