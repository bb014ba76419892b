from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from qanat.deploy.verify.address import read_address
from qanat.deploy.verify.exchange import Exchange
from qanat.evals.asking import DEFAULT_MAX_TOKENS, Asker, AskSettings
from qanat.evals.item import EvalItem
from qanat.evals.prompts import Examples
from qanat.evals.sending import Caller, Unanswered, retry_after_s
from tests.evals.stub import Script, chat, stub_server

ITEM = EvalItem(
    task="t", item_id="0", check="exact", answers=("x",), question="say x", is_thinking=True, max_tokens=7
)


def ask(script: Script, num_retries: int = 2, timeout_s: float = 30.0) -> tuple[str, int]:
    """The answer's text and how often was asked."""
    with stub_server(script) as stub:
        sender = Exchange(read_address(stub.url))
        asker = Asker(Caller(sender, timeout_s, num_retries), AskSettings(model="m"), Examples())
        try:
            text = asyncio.run(asker.ask(ITEM)).text
        except Unanswered as error:
            text = f"none: {error}"
        return text, len(stub.bodies)


def test_what_may_help_is_tried_again() -> None:
    assert ask(lambda body, count: (200, chat("x")) if count == 1 else (503, {})) == ("x", 2)
    assert ask(lambda body, count: (500, {"error": "out"}), num_retries=1) == ("none: status 500: out", 2)


def test_what_cannot_help_is_not() -> None:
    assert ask(lambda body, count: (400, {"error": {"message": "bad"}})) == ("none: status 400: bad", 1)
    assert ask(lambda body, count: (200, b"[]"))[1] == 1


def test_an_answer_that_never_comes_ends_by_the_clock() -> None:
    is_over = threading.Event()

    def script(body: Mapping[str, Any], count: int) -> tuple[int, Any]:
        is_over.wait(60)
        return 200, chat("late")

    text, _ = ask(script, num_retries=0, timeout_s=0.1)
    is_over.set()
    assert text == "none: no complete answer within 0.1 s"


@pytest.mark.parametrize(("text", "seconds"), [("2", 2), ("9999", 30), ("soon", 0), ("-1", 0), ("", 0)])
def test_how_long_a_server_asks_to_wait(text: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": text}) == seconds
    assert retry_after_s({}) == 0


def test_flags_go_before_the_item_and_that_before_the_default() -> None:
    plain = AskSettings(model="m").body(ITEM, [])
    assert (plain["max_tokens"], plain["chat_template_kwargs"]) == (7, {"enable_thinking": True})
    told = AskSettings(model="m", max_tokens=9, is_thinking=False, extra_body={"max_tokens": 11}).body(
        ITEM, []
    )
    assert (told["max_tokens"], told["chat_template_kwargs"]) == (11, {"enable_thinking": False})
    bare = EvalItem(task="t", item_id="0", check="exact", answers=("x",), question="say x")
    body = AskSettings(model="m").body(bare, [])
    assert body["max_tokens"] == DEFAULT_MAX_TOKENS
    assert body.keys() == {"model", "messages", "temperature", "max_tokens"}, (
        "nothing that a server might not know"
    )


def test_each_endpoint_is_asked_for_log_probabilities_in_its_way() -> None:
    bare = EvalItem(task="t", item_id="0", check="exact", answers=("x",), question="say x")
    assert AskSettings(model="m", logprobs=3).body(bare, [])["top_logprobs"] == 3
    assert AskSettings(model="m", logprobs=3, is_chat=False).body(bare, [])["logprobs"] == 3
