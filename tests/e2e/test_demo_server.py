"""What a stranger does in the first minutes: asks the running server, with the tools that he has."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.support.server_process import ServerProcess

SUMS = [
    ("What is 12 + 34?", 46),
    ("How much is 7 plus 15?", 22),
    ("Please add 120 and 45.", 165),
    ("what's 300 minus 45?", 255),
    ("Can you compute 99 + 1 for me?", 100),
    ("Calculate 512 - 256", 256),
    ("5+6=?", 11),
    ("What is the sum of 250 and 350?", 600),
    ("What is 81 - 18?", 63),
    ("Tell me what 444 plus 333 is.", 777),
]


def test_the_guides_functional_check(demo_server: ServerProcess) -> None:
    body = {"model": "qwen3.5", "prompt": "The future of AI is", "max_tokens": 50, "temperature": 0}
    response = httpx.post(f"{demo_server.base_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200
    assert response.json()["choices"][0]["text"]


def test_official_client_chats(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "What is 2 + 3?"}], temperature=0
    )
    assert "5" in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None and reply.usage.completion_tokens > 0


def test_stream_equals_whole(client: openai.OpenAI) -> None:
    request: Any = {
        "model": "demo",
        "messages": [{"role": "user", "content": "Sort: 5, 3, 9"}],
        "temperature": 0.8,
        "seed": 11,
        "max_tokens": 200,
    }
    whole = client.chat.completions.create(**request)
    text, reasoning, reasons = "", "", []
    for chunk in client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert text == (whole.choices[0].message.content or "")
    assert reasoning == (getattr(whole.choices[0].message, "reasoning", None) or "")
    assert reasons == [whole.choices[0].finish_reason]


def test_sums_in_plain_words_are_right(client: openai.OpenAI) -> None:
    right = 0
    for question, answer in SUMS:
        reply = client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": question}], temperature=0
        )
        right += str(answer) in (reply.choices[0].message.content or "")
    assert right >= 9


def test_thinking_can_be_switched_off(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "What is 2 + 3?"}],
        temperature=0,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    assert not getattr(reply.choices[0].message, "reasoning", None)
    assert reply.choices[0].message.content


def test_names_metrics_and_health(demo_server: ServerProcess) -> None:
    names = demo_server.get("/v1/models").json()["data"]
    assert [entry["id"] for entry in names] == ["demo", "qwen3.5"]
    metrics = demo_server.get("/metrics").text
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total"):
        assert name in metrics
    for path in ("/health", "/ready", "/version"):
        assert demo_server.get(path).status_code == 200


BAD_BODIES: list[tuple[dict[str, Any], int]] = [
    ({"prompt": [10**9]}, 400),
    ({"prompt": [-1]}, 400),
    ({"prompt": "x", "max_tokens": "many"}, 400),
    ({"prompt": {"a": 1}}, 400),
    ({"prompt": "x", "temperature": -1}, 400),
    ({"prompt": "x", "logit_bias": {"99999999": 1}}, 400),
    ({"prompt": [1] * 300_000}, 400),
    ({"prompt": "x", "max_tokens": 10**9}, 400),
    ({"prompt": "x", "model": "nobody"}, 404),
]


@pytest.mark.parametrize(("body", "status"), BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_bad_input_is_refused_with_a_reason(
    demo_server: ServerProcess, client: openai.OpenAI, body: dict[str, Any], status: int
) -> None:
    response = httpx.post(
        f"{demo_server.base_url}/v1/completions", json={"model": "demo", **body}, timeout=60
    )
    error = response.json()["error"]
    assert response.status_code == status, response.text
    assert error["message"] and error["param"]
    alive = client.completions.create(model="demo", prompt="1", max_tokens=1)
    assert alive.usage is not None and alive.usage.completion_tokens == 1
