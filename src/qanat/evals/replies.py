"""What a server answered, of either endpoint, as one shape."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from qanat.evals.extraction import without_thinking

TokenChances = dict[str, float]
"""Log-probabilities of the likeliest tokens at one place, by token."""


class MisfitError(ValueError):
    """An answer is not of the shape that the API gives it."""


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Whatever goes wrong within says that the answer has another shape (MisfitError)."""
    try:
        yield
    except MisfitError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MisfitError(f"the answer has another shape ({type(error).__name__}: {error})") from None


@dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        text: the answer itself, thinking left out.
        thinking: what was thought before it.
        tool_calls: name and arguments of each.
        finish_reason: as the server says it; "length" for an answer that was cut.
        usage: as the server counts it; empty where it does not.
        tokens: text of the first tokens, where log-probabilities were asked for.
        chances: the likeliest tokens at the places of `tokens`.
        scores: log-probability of each choice by its letter, where that was asked for.
    """

    text: str
    thinking: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    chances: tuple[TokenChances, ...] = ()
    scores: Mapping[str, float] | None = None

    @property
    def is_empty(self) -> bool:
        """There is neither text nor a call."""
        return not self.text.strip() and not self.tool_calls


def read_reply(body: bytes, *, is_chat: bool, max_places: int = 0) -> Reply:
    """The first choice of a whole (not streamed) answer.

    Args:
        body: JSON.
        is_chat: of a chat completion, not of a completion.
        max_places: of log-probabilities that are kept.

    Raises:
        MisfitError: it has another shape.
    """
    with reading():
        value = json.loads(body)
        if value.get("error"):
            raise MisfitError(f"an error with status 200: {value['error']}")
        choice = value["choices"][0]
        reason = choice.get("finish_reason") or ""
        usage = value.get("usage") or {}
        tokens, chances = _chances(choice.get("logprobs"), max_places)
        if not is_chat:
            thinking, text = without_thinking(choice["text"])
            return Reply(text, thinking, (), reason, usage, tokens, chances)
        message = choice["message"]
        own_thinking = message.get("reasoning") or message.get("reasoning_content") or ""
        thinking, text = without_thinking(message.get("content") or "")
        calls = tuple(
            (call["function"]["name"], call["function"].get("arguments") or "{}")
            for call in message.get("tool_calls") or ()
        )
        return Reply(text, own_thinking or thinking, calls, reason, usage, tokens, chances)


def _chances(logprobs: Any, max_places: int) -> tuple[tuple[str, ...], tuple[TokenChances, ...]]:
    """Tokens and chances of the first places; nothing where the server gave none."""
    if not logprobs or not max_places:
        return (), ()
    if "content" in logprobs:
        places = (logprobs["content"] or [])[:max_places]
        tokens = [place["token"] for place in places]
        tops = [
            _likeliest((one["token"], float(one["logprob"])) for one in place["top_logprobs"])
            for place in places
        ]
    else:
        tokens = list(logprobs["tokens"][:max_places])
        tops = [
            {token: float(chance) for token, chance in (place or {}).items()}
            for place in (logprobs.get("top_logprobs") or [])[:max_places]
        ]
    return tuple(tokens[: len(tops)]), tuple(tops)


def _likeliest(chances: Iterable[tuple[str, float]]) -> TokenChances:
    """By token; where several have the same text, as special ones that are shown as nothing, the likeliest counts."""
    best: TokenChances = {}
    for token, chance in chances:
        best[token] = max(chance, best.get(token, chance))
    return best
