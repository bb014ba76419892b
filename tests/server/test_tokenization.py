"""/tokenize and /detokenize agree with what generation does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.test_errors import refuse, still_serves
from tests.support.app_server import AppServer

CONVERSATION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How are you? 好"}]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def tokenize(server: AppServer, **body: Any) -> dict[str, Any]:
    response = server.post("/tokenize", body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["count"] == len(answer["tokens"])
    return answer


def test_a_text_has_the_tokens_that_generation_counts(server: AppServer) -> None:
    answer = tokenize(server, prompt="ab<think>c", model="scripted-alias", add_special_tokens=True)
    think = server.scripted.tokenizer.token_id("<think>")
    assert answer == {"count": 4, "max_model_len": 2048, "tokens": [97, 98, think, 99], "token_strs": None}
    used = server.post("/v1/completions", {"prompt": "ab<think>c", "max_tokens": 1}).json()["usage"]
    assert used["prompt_tokens"] == 4
    assert tokenize(server, prompt="")["tokens"] == []


def test_token_strs_spell_every_token(server: AppServer) -> None:
    answer = tokenize(server, prompt="a<think>é", return_token_strs=True)
    assert answer["token_strs"] == ["a", "<think>", r"bytes:\xc3", r"bytes:\xa9"]


@pytest.mark.parametrize(
    "more", [{}, {"tools": [TOOL]}, {"chat_template_kwargs": {"enable_thinking": False}}]
)
def test_a_conversation_has_the_tokens_of_its_prompt(server: AppServer, more: dict[str, Any]) -> None:
    answer = tokenize(server, messages=CONVERSATION, **more)
    chat = server.post("/v1/chat/completions", {"messages": CONVERSATION, "max_tokens": 1, **more}).json()
    assert chat["usage"]["prompt_tokens"] == answer["count"]
    bare = tokenize(server, messages=CONVERSATION, add_generation_prompt=False, **more)
    assert answer["tokens"][: bare["count"]] == bare["tokens"]
    added = server.post("/detokenize", {"tokens": answer["tokens"][bare["count"] :]}).json()["prompt"]
    assert added.startswith("<|im_start|>assistant\n")
    assert "assistant" not in server.post("/detokenize", {"tokens": bare["tokens"]}).json()["prompt"]


@given(text=st.text(max_size=200))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_detokenize_undoes_tokenize(server: AppServer, text: str) -> None:
    tokens = tokenize(server, prompt=text)["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json() == {"prompt": text}


def test_special_tokens_stay_in_the_text(server: AppServer) -> None:
    text = "<|im_start|>user\nx<|im_end|>"
    tokens = tokenize(server, prompt=text)["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json() == {"prompt": text}


def test_a_text_beyond_the_window_is_counted(server: AppServer) -> None:
    assert tokenize(server, prompt="x" * 300_000)["count"] == 300_000


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "x", "messages": CONVERSATION}, "prompt"),
        ({"prompt": ["x"]}, "prompt"),
        ({"prompt": "x", "add_generation_prompt": True}, "add_generation_prompt"),
        ({"prompt": "x", "tools": [TOOL]}, "tools"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": CONVERSATION, "tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"messages": CONVERSATION, "chat_template": "{{ messages }}"}, "chat_template"),
        ({"prompt": "x", "return_token_str": True}, "return_token_str"),
    ],
    ids=str,
)
def test_bad_requests_to_tokenize(server: AppServer, body: dict[str, Any], param: str) -> None:
    refuse(server.post("/tokenize", body), param=param)
    still_serves(server)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "tokens"),
        ({"tokens": [97, -1]}, "tokens[1]"),
        ({"tokens": [97, 8192]}, "tokens[1]"),
        ({"tokens": [97, 2**70]}, "tokens[1]"),
        ({"tokens": "a"}, "tokens"),
        ({"tokens": [[1]]}, "tokens[0]"),
    ],
    ids=str,
)
def test_bad_requests_to_detokenize(server: AppServer, body: dict[str, Any], param: str) -> None:
    error = refuse(server.post("/detokenize", body), param=param)
    assert param.partition("[")[0] in error["message"]


def test_unknown_models_and_methods(server: AppServer) -> None:
    refuse(server.post("/tokenize", {"prompt": "x", "model": "other"}), 404, "model")
    refuse(server.post("/detokenize", {"tokens": [], "model": "other"}), 404, "model")
    refuse(server.http.get("/tokenize"), 405)
    refuse(server.http.post("/tokenize", content=b"{", headers={"content-type": "application/json"}))
    assert server.post("/detokenize", {"tokens": []}).json() == {"prompt": ""}
