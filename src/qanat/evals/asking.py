"""Asks a server of the OpenAI API questions, each for an answer in the server's own words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qanat.evals.choices import Scoring, scores_of_letters
from qanat.evals.item import EvalItem
from qanat.evals.prompts import (
    COMPLETION_STOPS,
    Examples,
    Wording,
    chat_messages,
    completion_text,
    wire_messages,
)
from qanat.evals.replies import MisfitError, Reply, read_reply
from qanat.evals.sending import Caller, HopelessError, Unanswered

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BROKEN = frozenset({"abort", "aborted", "cancelled", "error", "timeout", "content_filter"})
"""Reasons for which an answer ended that say that there is none."""
CODE_STOPS = ("\nclass ", "\ndef ", "\nif __name__", "\nprint(")
NUM_PLACES = 8
"""Of so many first tokens the log-probabilities are kept."""
NUM_LETTER_LOGPROBS = 20
"""Likeliest first tokens that letters are looked for in: as many as servers give unless they are told to give more."""
DEFAULT_MAX_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class AskSettings:
    """How items are asked.

    Attributes:
        model: name that the server knows.
        is_chat: over chat completions; completions otherwise.
        is_thinking: for all items; None leaves it to the item, and then to the model.
        max_tokens: of an answer, for all items; None leaves it to the item.
        temperature, top_p, seed: of sampling; None sends nothing. See `seed_of_sample`.
        system: system text for items without one.
        template: of the question; see `Wording`.
        stops: texts at which an answer ends.
        logprobs: likeliest tokens that are asked for at each place; 0 for none.
        scoring: what choices are judged by.
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
    scoring: Scoring = "answer"
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wording(self) -> Wording:
        """How questions are put."""
        return Wording(self.system, self.template, self.scoring)

    def stops_of(self, item: EvalItem) -> tuple[str, ...]:
        """Where the answer to this item ends. Without thinking only: an answer to a chat ends by itself."""
        if self.is_chat:
            return self.stops
        return self.stops or (CODE_STOPS if item.check == "code" else COMPLETION_STOPS)

    def body(self, item: EvalItem, examples: Sequence[EvalItem], sample: int = 0) -> dict[str, Any]:
        """The request for one of the answers to an item."""
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens or item.max_tokens or DEFAULT_MAX_TOKENS,
        }
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if self.seed is not None:
            body["seed"] = seed_of_sample(self.seed, item, sample)
        if self.is_chat:
            messages = chat_messages(item, examples, self.wording)
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
            body["prompt"] = completion_text(item, examples, self.wording)
            body["stop"] = list(self.stops_of(item))
            if self.logprobs:
                body["logprobs"] = self.logprobs
        return {**body, **self.extra_body}


def seed_of_sample(seed: int, item: EvalItem, sample: int) -> int:
    """Seed of one of several answers to an item, below 2**31 as some servers take no larger ones.

    The first answer has the run's own seed, so a run of one answer can be made one of several. The others depend on
    the item too: servers whose noise is a function of seed and position would otherwise give all items the same.
    """
    if not sample:
        return seed
    told = json.dumps([seed, *item.key, sample]).encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:4], "big") >> 1


class Asker:
    """Asks one server.

    Args:
        caller: of the server.
        settings: how items are asked.
        examples: that are shown before them.
    """

    def __init__(self, caller: Caller, settings: AskSettings, examples: Examples) -> None:
        self.settings = settings
        self._caller = caller
        self._examples = examples

    def body(self, item: EvalItem, sample: int = 0) -> dict[str, Any]:
        """What is sent for an answer to an item."""
        return self.settings.body(item, self._examples.of(item), sample)

    async def ask(self, item: EvalItem, sample: int = 0) -> Reply:
        """One of the answers to an item.

        Raises:
            Unanswered: there is none, after all tries.
            HopelessError: there will be none to any item.
        """
        path = CHAT if self.settings.is_chat else COMPLETIONS
        reply = self._read(await self._caller.post(path, self.body(item, sample)))
        if self.settings.scoring != "letter":
            return reply
        if not reply.chances:
            raise HopelessError("the server gives no log-probabilities, which --scoring letter reads.")
        return replace(reply, scores=scores_of_letters(reply.chances[0], len(item.choices)))

    def _read(self, body: bytes) -> Reply:
        num_places = NUM_PLACES if self.settings.logprobs else 0
        try:
            reply = read_reply(body, is_chat=self.settings.is_chat, max_places=num_places)
        except MisfitError as error:
            raise Unanswered(self._caller.hide(str(error))) from None
        if reply.finish_reason in BROKEN:
            raise Unanswered(f"the server ended the answer: {reply.finish_reason}")
        return reply
