"""What a check is, and what checks know of each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from qanat.deploy.verify.metrics import read_metrics
from qanat.deploy.verify.service import CHAT, COMPLETIONS, Fault, Service

Status = Literal["ok", "warn", "fail", "skipped"]


class Skip(Exception):
    """The check cannot be done here; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is expected of the service.

    Attributes:
        model: name for requests; None takes the one that the service names.
        max_model_len: window in tokens; None takes what the service says.
        concurrency: streams at once.
        wait_s: how long the service may take to become ready.
        timeout_s: for one request.
    """

    model: str | None = None
    max_model_len: int | None = None
    concurrency: int = 8
    wait_s: float = 60.0
    timeout_s: float = 120.0


@dataclass
class Context:
    """The service, what is expected, and what earlier checks found out.

    Attributes:
        service: to ask.
        settings: what is expected.
        model: name for requests, once it is known.
        max_model_len: window, once it is known.
        texts: answers so far, with the check that got them.
        counters: metrics at the beginning; empty where the service exports none.
    """

    service: Service
    settings: Settings
    model: str = ""
    max_model_len: int | None = None
    texts: list[tuple[str, str]] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)

    async def metrics(self) -> dict[str, float]:
        """The service's metrics now; empty if it exports none."""
        try:
            answer = await self.service.get("/metrics")
        except Fault:
            return {}
        return dict(read_metrics(answer.body.decode(errors="replace"))) if answer.status == 200 else {}

    def completion(self, prompt: str, max_tokens: int, **fields: object) -> dict[str, object]:
        """The body of a greedy completion."""
        return {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **fields}

    def chat(
        self, message: str, max_tokens: int, *, thinks: bool = False, **fields: object
    ) -> dict[str, object]:
        """The body of a greedy chat completion."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": message}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": thinks},
            **fields,
        }


Run = Callable[[Context], Awaitable[str]]


@dataclass(frozen=True)
class Check:
    """One question to a service.

    Attributes:
        name: for --only and --skip.
        title: what it asks, in a few words.
        needs: checks without which it makes no sense.
        run: returns what was seen; raises Fault or Skip.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    run: Run


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they run."""


def check(name: str, title: str, needs: tuple[str, ...] = ("model",)) -> Callable[[Run], Run]:
    """Registers a check; those that it needs stand before it."""

    def register(run: Run) -> Run:
        CHECKS[name] = Check(name, title, needs, run)
        return run

    return register


__all__ = ["CHAT", "CHECKS", "COMPLETIONS", "Check", "Context", "Settings", "Skip", "Status", "check"]
