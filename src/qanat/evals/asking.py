"""Asks a server of the OpenAI API, again where trying again may help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from qanat.core.errors import ConfigError, QanatError
from qanat.deploy.verify.exchange import Answer, ExchangeError
from qanat.deploy.verify.service import message_of, shown
from qanat.evals.item import EvalItem
from qanat.evals.prompts import (
    COMPLETION_STOPS,
    Examples,
    chat_messages,
    completion_text,
    wire_messages,
)
from qanat.evals.replies import MisfitError, Reply, read_reply

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
HOPELESS = frozenset({401, 403, 404, 405})
"""Statuses that every other item will meet too."""
BROKEN = frozenset({"abort", "aborted", "cancelled", "error", "timeout", "content_filter"})
"""Reasons for which an answer ended that say that there is none."""
CODE_STOPS = ("\nclass ", "\ndef ", "\nif __name__", "\nprint(")
FIRST_WAIT_S, MAX_WAIT_S = 0.5, 30.0
NUM_PLACES = 8
"""Of so many first tokens the log-probabilities are kept."""
DEFAULT_MAX_TOKENS = 2048


class Unanswered(Exception):
    """An item has no answer; the text says why."""


class HopelessError(QanatError):
    """No item can be answered: the server is not there, or refuses what all have in common."""

    code = "evaluation_failed"


class Sender(Protocol):
    """Sends one request; `qanat.deploy.verify.exchange.Exchange` is one."""

    async def request(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float, with_key: bool = True
    ) -> Answer:
        """The whole answer, whatever its status. Raises ExchangeError where there is none."""
        ...

    def hide(self, text: str) -> str:
        """The text without the key, which servers may repeat in what they answer."""
        ...


@dataclass(frozen=True, kw_only=True)
class AskSettings:
    """How items are asked.

    Attributes:
        model: name that the server knows.
        is_chat: over chat completions; completions otherwise.
        is_thinking: for all items; None leaves it to the item, and then to the model.
        max_tokens: of an answer, for all items; None leaves it to the item.
        temperature, top_p, seed: of sampling; None sends nothing.
        system: system text for items without one.
        template: of the question; see `request_text`.
        stops: texts at which an answer ends.
        logprobs: likeliest tokens that are asked for at each place; 0 for none.
        extra_body: more fields of the request; they go before ours.
    """

    model: str
    is_chat: bool = True
    is_thinking: bool | None = None
    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float | None = None
    seed: int | None = None
    system: str = ""
    template: str | None = None
    stops: tuple[str, ...] = ()
    logprobs: int = 0
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def stops_of(self, item: EvalItem) -> tuple[str, ...]:
        """Where the answer to this item ends. Without thinking only: an answer to a chat ends by itself."""
        if self.is_chat:
            return self.stops
        return self.stops or (CODE_STOPS if item.check == "code" else COMPLETION_STOPS)

    def body(self, item: EvalItem, examples: Sequence[EvalItem]) -> dict[str, Any]:
        """The request."""
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens or item.max_tokens or DEFAULT_MAX_TOKENS,
        }
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if self.seed is not None:
            body["seed"] = self.seed
        if self.is_chat:
            messages = chat_messages(item, examples, system=self.system, template=self.template)
            body["messages"] = wire_messages(messages)
            thinking = item.is_thinking if self.is_thinking is None else self.is_thinking
            if thinking is not None:
                body["chat_template_kwargs"] = {"enable_thinking": thinking}
            if item.tools:
                body["tools"] = list(item.tools)
            if self.logprobs:
                body |= {"logprobs": True, "top_logprobs": self.logprobs}
            # Stops are applied to the answer here, as a server may take those in the thinking for them.
        else:
            body["prompt"] = completion_text(item, examples, system=self.system, template=self.template)
            body["stop"] = list(self.stops_of(item))
            if self.logprobs:
                body["logprobs"] = self.logprobs
        return {**body, **self.extra_body}


class Asker:
    """Asks one server.

    Args:
        sender: with the server's address.
        settings: how items are asked.
        examples: that are shown before them.
        timeout_s: for one answer.
        num_retries: further tries for an answer that did not come.
    """

    def __init__(
        self, sender: Sender, settings: AskSettings, examples: Examples, timeout_s: float, num_retries: int
    ) -> None:
        self.settings = settings
        self._sender = sender
        self._examples = examples
        self._timeout_s = timeout_s
        self._num_retries = num_retries

    def body(self, item: EvalItem) -> dict[str, Any]:
        """What is sent for an item."""
        return self.settings.body(item, self._examples.of(item))

    async def ask(self, item: EvalItem) -> Reply:
        """The answer to an item.

        Raises:
            Unanswered: there is none, after all tries.
            HopelessError: there will be none to any item.
        """
        is_chat = self.settings.is_chat
        content = json.dumps(self.body(item), ensure_ascii=False).encode("utf-8", "replace")
        for left in range(self._num_retries, -1, -1):
            wait_s = min(FIRST_WAIT_S * 2.0 ** (self._num_retries - left), MAX_WAIT_S)
            try:
                answer = await self._sender.request(
                    "POST", CHAT if is_chat else COMPLETIONS, content, timeout_s=self._timeout_s
                )
            except ExchangeError as error:
                if not left:
                    raise Unanswered(error.text) from None
            else:
                if answer.status == 200:
                    return self._read(answer.body)
                seen = self._sender.hide(f"status {answer.status}: {shown(message_of(answer.body))}")
                if answer.status in HOPELESS:
                    raise HopelessError(f"the server refuses every question: {seen}")
                if answer.status not in AGAIN or not left:
                    raise Unanswered(seen)
                wait_s = max(wait_s, retry_after_s(answer.headers))
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _read(self, body: bytes) -> Reply:
        num_places = NUM_PLACES if self.settings.logprobs else 0
        try:
            reply = read_reply(body, is_chat=self.settings.is_chat, max_places=num_places)
        except MisfitError as error:
            raise Unanswered(self._sender.hide(str(error))) from None
        if reply.finish_reason in BROKEN:
            raise Unanswered(f"the server ended the answer: {reply.finish_reason}")
        return reply


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait; 0 where it says nothing that is understood."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), MAX_WAIT_S) if text.isascii() and text.isdigit() else 0.0


async def model_of(sender: Sender, timeout_s: float) -> str:
    """The first model that the server names.

    Raises:
        HopelessError: it cannot be reached, or names none.
        ConfigError: it wants a key.
    """
    try:
        answer = await sender.request("GET", "/v1/models", timeout_s=timeout_s)
    except ExchangeError as error:
        raise HopelessError(f"the server cannot be asked: {error.text}.") from None
    if answer.status in (401, 403):
        raise ConfigError(
            "the server wants an API key: name the variable that holds it with --api-key-env.",
            param="--api-key-env",
        )
    try:
        return str(json.loads(answer.body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise HopelessError(
            f"the server names no model (status {answer.status}: {sender.hide(shown(message_of(answer.body)))}); "
            "--model says which to ask."
        ) from None
