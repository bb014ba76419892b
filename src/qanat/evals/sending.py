"""Sends requests to a server of the OpenAI API, again where trying again may help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

from qanat.core.errors import ConfigError, QanatError
from qanat.deploy.verify.exchange import Answer, ExchangeError
from qanat.deploy.verify.service import message_of, shown

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
HOPELESS = frozenset({401, 403, 404, 405})
"""Statuses that every other item will meet too."""
FIRST_WAIT_S, MAX_WAIT_S = 0.5, 30.0


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


class Caller:
    """Sends requests until they are answered.

    Args:
        sender: with the server's address.
        timeout_s: for one answer.
        num_retries: further tries for an answer that did not come.
    """

    def __init__(self, sender: Sender, timeout_s: float, num_retries: int) -> None:
        self._sender = sender
        self._timeout_s = timeout_s
        self._num_retries = num_retries

    def hide(self, text: str) -> str:
        """The text without the key."""
        return self._sender.hide(text)

    async def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The body of the answer.

        Raises:
            Unanswered: there is none, after all tries.
            HopelessError: there will be none to any request of the kind.
        """
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        for left in range(self._num_retries, -1, -1):
            wait_s = min(FIRST_WAIT_S * 2.0 ** (self._num_retries - left), MAX_WAIT_S)
            try:
                answer = await self._sender.request("POST", path, content, timeout_s=self._timeout_s)
            except ExchangeError as error:
                if not left:
                    raise Unanswered(error.text) from None
            else:
                if answer.status == 200:
                    return answer.body
                seen = self.hide(f"status {answer.status}: {shown(message_of(answer.body))}")
                if answer.status in HOPELESS:
                    raise HopelessError(f"the server refuses every question: {seen}")
                if answer.status not in AGAIN or not left:
                    raise Unanswered(seen)
                wait_s = max(wait_s, retry_after_s(answer.headers))
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")


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
