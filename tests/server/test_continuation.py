"""Prompts that end within the assistant's final message, and the answers that go on from there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.constraint import Thinking
from qanat.core.errors import InvalidRequestError
from qanat.server.continuation import Ending
from qanat.server.messages import normalise_messages
from qanat.server.renderer import ChatRenderer
from tests.server.test_errors import refuse, still_serves
from tests.server.test_renderer import PLAIN, make_renderer, text_of
from tests.support.app_server import AppServer

CHAT = "/v1/chat/completions"
HI = {"role": "user", "content": "hi"}
STRIPPING = (
    "{% for m in messages %}[{{ m.content | trim }}]\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)
WRAPPING = "{% for m in messages %}<{{ m.role }}>{{ ' ' ~ m.content ~ ' ' }}</{{ m.role }}>{% endfor %}"
FAMILIES = ("qwen3", "qwen3_5")


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def continued(renderer: ChatRenderer, *messages: dict[str, Any]) -> str:
    prompt = renderer.render_now(normalise_messages(messages), None, None, Ending.CONTINUE)
    assert prompt.thinking is Thinking.NONE
    return text_of(prompt)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("content", ["The answer is ", "one\n\n", "  indented", "x", "a<|im_end|>b", "hi"])
def test_the_prompt_ends_with_the_text_as_it_stands(family: str, content: str) -> None:
    prompt = continued(make_renderer(family=family), HI, said(content))
    assert prompt.endswith(content.lstrip())
    assert not prompt.endswith("<|im_end|>\n")
    assert prompt.startswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (PLAIN, "user: hi\nassistant: The answer is "),
        (STRIPPING, "[hi]\n[The answer is "),
        (WRAPPING, "<user> hi </user><assistant> The answer is "),
    ],
)
def test_templates_that_strip_or_add(template: str, expected: str) -> None:
    assert continued(make_renderer(template), HI, said("The answer is ")) == expected


@pytest.mark.parametrize("family", FAMILIES)
@given(
    content=st.text(max_size=30).filter(lambda text: "think>" not in text),
    question=st.text(max_size=10).filter(str.strip),
)
@settings(max_examples=60, deadline=None)
def test_what_stands_before_the_text_does_not_depend_on_it(family: str, content: str, question: str) -> None:
    renderer = make_renderer(family=family)
    user = {"role": "user", "content": question}
    start = continued(renderer, user, said(""))
    shown = content.lstrip() if family == "qwen3_5" else content.lstrip("\n")
    assert continued(renderer, user, said(content)) == start + shown


def test_thoughts_before_the_text_stay_thoughts() -> None:
    content = "<think>\nwhy\n</think>\n\nThe answer"
    for family in FAMILIES:
        assert continued(make_renderer(family=family), HI, said(content)).endswith("assistant\n" + content)
        split = continued(make_renderer(family=family), HI, said("The answer", reasoning="why"))
        assert split.endswith("assistant\n" + content)


def test_parts_are_continued_at_the_last_one() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two "}]
    assert continued(make_renderer(), HI, said(parts)).endswith("onetwo ")
    assert continued(make_renderer(PLAIN), HI, said(parts)).endswith("one\ntwo ")
    assert continued(make_renderer(), HI, said([])).endswith("</think>\n\n")


@pytest.mark.parametrize(
    ("template", "final", "why"),
    [
        (None, HI, "must be the assistant's"),
        (None, said("x", tool_calls=[{"function": {"name": "f"}}]), "tool_calls"),
        ("{{ messages[0].content }}", said("x"), "does not show the final message's text."),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", said("x"), "does not show"),
        ("{% for m in messages %}{{ m.content | replace('x', 'y') }}{% endfor %}", said("x"), "as it stands"),
    ],
)
def test_what_cannot_be_continued_is_refused(template: str | None, final: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as caught:
        continued(make_renderer(template), HI, final)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize("is_stream", [True, False])
def test_an_answer_goes_on_as_answer(server: AppServer, qwen3_server: AppServer, is_stream: bool) -> None:
    for running in (server, qwen3_server):
        running.say(["</think>", " 4", "2"])
        body = {"messages": [HI, said("It is")], "continue_final_message": True}
        if is_stream:
            chunks = running.stream(CHAT, body)
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            assert "".join(delta.get("content", "") for delta in deltas) == "</think> 42"
            assert not any("reasoning" in delta for delta in deltas)
        else:
            message = running.post(CHAT, body).json()["choices"][0]["message"]
            assert (message["content"], message["reasoning"]) == ("</think> 42", None)


def test_the_prompt_is_what_tokenize_says(server: AppServer) -> None:
    server.say(["x"])
    for more in ({"continue_final_message": True}, {"add_generation_prompt": False}, {}):
        body = {"messages": [HI, said("It is")], **more}
        tokens = server.post("/tokenize", body).json()["tokens"]
        answer = server.post(CHAT, {**body, "return_token_ids": True, "max_tokens": 1}).json()
        assert answer["prompt_token_ids"] == tokens
    cut = server.post("/tokenize", {"messages": [HI, said("It is")], "continue_final_message": True}).json()[
        "tokens"
    ]
    assert server.post("/detokenize", {"tokens": cut}).json()["prompt"].endswith("</think>\n\nIt is")


@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
def test_wrong_endings_are_refused(server: AppServer, path: str) -> None:
    both = {"messages": [HI, said("x")], "continue_final_message": True, "add_generation_prompt": True}
    refuse(server.post(path, both), param="add_generation_prompt")
    refuse(
        server.post(path, {"messages": [HI], "continue_final_message": True}), param="continue_final_message"
    )
    still_serves(server)


def test_text_has_no_final_message(server: AppServer) -> None:
    refuse(
        server.post("/tokenize", {"prompt": "x", "continue_final_message": True}),
        param="continue_final_message",
    )
