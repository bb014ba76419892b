"""OpenAI's client library against a server: openai_client.py BASE_URL MODEL. Prints one line per thing it did."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai
from pydantic import BaseModel

HI: Any = [{"role": "user", "content": "What is 12 + 34?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Sum(BaseModel):
    """What `parse` is to give back."""

    total: int


def check_sync(client: openai.OpenAI, model: str) -> None:
    """Whole answers, both endpoints, models, errors."""
    reply = client.chat.completions.create(model=model, messages=HI, temperature=0)
    assert "46" in (reply.choices[0].message.content or ""), reply
    assert reply.usage is not None and reply.usage.completion_tokens > 0
    text = client.completions.create(model=model, prompt="1 + 1 =", max_tokens=4, logprobs=2, echo=True)
    assert text.choices[0].text.startswith("1 + 1 =") and text.choices[0].logprobs is not None
    assert model in [card.id for card in client.models.list().data]
    try:
        client.chat.completions.create(model="no such model", messages=HI)
    except openai.NotFoundError as error:
        assert "no such model" in error.message
    else:
        raise AssertionError("an unknown model was accepted")


def check_stream(client: openai.OpenAI, model: str) -> None:
    """A stream says what the whole answer says."""
    whole = client.chat.completions.create(model=model, messages=HI, temperature=0)
    parts = []
    usage = None
    for chunk in client.chat.completions.create(
        model=model, messages=HI, temperature=0, stream=True, stream_options={"include_usage": True}
    ):
        parts += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    assert "".join(parts) == whole.choices[0].message.content
    assert usage == whole.usage


def check_tools(client: openai.OpenAI, model: str) -> None:
    """A named function is called with arguments that fit its schema, and its answer can be sent back."""
    choice: Any = {"type": "function", "function": {"name": "add"}}
    reply = client.chat.completions.create(
        model=model, messages=HI, tools=[TOOL], tool_choice=choice, temperature=0, max_tokens=200
    )
    (call,) = reply.choices[0].message.tool_calls or []
    assert call.type == "function" and call.function.name == "add"
    assert set(json.loads(call.function.arguments)) == {"a", "b"}, call
    answer: Any = {"role": "tool", "tool_call_id": call.id, "content": "46"}
    history: Any = [*HI, reply.choices[0].message, answer]
    assert client.chat.completions.create(model=model, messages=history, tools=[TOOL], max_tokens=20).choices


def check_parse(client: openai.OpenAI, model: str) -> None:
    """`parse` gives an object of the wanted class."""
    reply = client.chat.completions.parse(
        model=model, messages=HI, response_format=Sum, temperature=0, max_tokens=200
    )
    assert isinstance(reply.choices[0].message.parsed, Sum), reply


async def check_async(base_url: str, model: str) -> None:
    """Many at once, whole and streamed."""
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

        async def ask(number: int) -> str:
            if number % 2:
                reply = await client.chat.completions.create(model=model, messages=HI, temperature=0)
                return reply.choices[0].message.content or ""
            stream = await client.chat.completions.create(
                model=model, messages=HI, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        answers = await asyncio.gather(*(ask(number) for number in range(8)))
    assert len(set(answers)) == 1, answers


def main() -> int:
    """Runs every check; the exit code is 1 if one failed."""
    base_url, model = f"{sys.argv[1]}/v1", sys.argv[2]
    failed = False
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120) as client:
        checks = {
            "sync": lambda: check_sync(client, model),
            "async": lambda: asyncio.run(check_async(base_url, model)),
            "stream": lambda: check_stream(client, model),
            "tools": lambda: check_tools(client, model),
            "parse": lambda: check_parse(client, model),
        }
        for name, check in checks.items():
            try:
                check()
                print(f"openai {openai.__version__} {name}: ok")
            except Exception as error:
                failed = True
                print(f"openai {openai.__version__} {name}: FAILED: {error!r}"[:600])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
