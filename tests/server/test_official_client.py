"""OpenAI's own client library with its helpers for forms and tools, against the real application."""

from __future__ import annotations

from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.server.tools.replies import pieces_of, xml_text
from tests.support.app_server import AppServer

CLOSE = "</think>"
MODEL = "scripted"
MESSAGES: Any = [{"role": "user", "content": "Who won?"}]


class Player(BaseModel):
    """One of them."""

    name: str
    points: int


class Result(BaseModel):
    """A nested answer."""

    sport: Literal["chess", "go"]
    players: list[Player]
    note: str | None


class GetWeather(BaseModel):
    """Weather of a city."""

    city: str
    days: int


NAMED = {"type": "function", "function": {"name": "GetWeather"}}
ANSWER = (
    '{"sport": "chess", "players": [{"name": "Ann", "points": 2}, {"name": "Bo", "points": 1}], "note": null}'
)
CALL = xml_text("GetWeather", {"city": "Oslo", "days": 3})


def check(result: Result | None) -> None:
    assert result is not None
    assert result.players == [Player(name="Ann", points=2), Player(name="Bo", points=1)]
    assert (result.sport, result.note) == ("chess", None)


@pytest.fixture
def client(server: AppServer) -> Any:
    with server.client() as client:
        yield client


def test_parse_returns_the_model(server: AppServer, client: openai.OpenAI) -> None:
    server.say(["why", CLOSE, "\n\n", "Let me see: ", *pieces_of(ANSWER, 5), " That is all."])
    answer = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Result)
    check(answer.choices[0].message.parsed)
    assert answer.choices[0].message.refusal is None
    assert answer.choices[0].finish_reason == "stop"


def test_the_stream_helper_parses_at_the_end(server: AppServer, client: openai.OpenAI) -> None:
    server.say(["why", CLOSE, "\n\n", *pieces_of(ANSWER, 3)])
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, response_format=Result, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= set(kinds)
    check(answer.choices[0].message.parsed)
    assert answer.usage is not None and answer.usage.completion_tokens > 10


@pytest.mark.parametrize(
    "choice", ["auto", "required", {"type": "function", "function": {"name": "GetWeather"}}], ids=str
)
def test_tools_made_from_models_are_parsed(server: AppServer, client: openai.OpenAI, choice: Any) -> None:
    tools = [openai.pydantic_function_tool(GetWeather)]
    server.say(["why", CLOSE, "\n\n", *pieces_of(CALL, 4)])
    answer = client.chat.completions.parse(model=MODEL, messages=MESSAGES, tools=tools, tool_choice=choice)
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == GetWeather(city="Oslo", days=3)
    assert answer.choices[0].finish_reason == ("stop" if isinstance(choice, dict) else "tool_calls")


def test_tools_in_the_stream_helper(server: AppServer, client: openai.OpenAI) -> None:
    server.say(["why", CLOSE, "\n\n", "I look.", "\n\n", *pieces_of(CALL, 4)])
    tools = [openai.pydantic_function_tool(GetWeather)]
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, tools=tools) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        answer = stream.get_final_completion()
    assert [event.parsed_arguments for event in done] == [GetWeather(city="Oslo", days=3)]
    assert answer.choices[0].message.content == "I look."
    assert answer.choices[0].finish_reason == "tool_calls"


def test_a_form_and_tools_together(server: AppServer, client: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(GetWeather)]
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "tools": tools, "response_format": Result}
    server.say(["why", CLOSE, "\n\n", *pieces_of(ANSWER, 4)])
    check(client.chat.completions.parse(**asked).choices[0].message.parsed)
    server.say(["why", CLOSE, "\n\n", *pieces_of(CALL, 4)])
    (call,) = client.chat.completions.parse(**asked).choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == GetWeather(city="Oslo", days=3)


def test_an_answer_that_the_limit_cut_is_the_clients_own_error(
    server: AppServer, client: openai.OpenAI
) -> None:
    server.say([CLOSE, *pieces_of(ANSWER, 3)])
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Result, max_tokens=9)


def test_extra_fields_go_through_the_client(server: AppServer, client: openai.OpenAI) -> None:
    server.say([CLOSE, "no", "t"])
    extra = {"structured_outputs": {"choice": ["yes", "no"]}, "return_token_ids": True}
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=extra)
    assert answer.choices[0].message.content == "no"
    assert answer.choices[0].model_extra is not None and len(answer.choices[0].model_extra["token_ids"]) == 3
    text = client.completions.create(model=MODEL, prompt="x", extra_body={"guided_regex": "n[a-z]"})
    assert text.choices[0].text.startswith("no")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"guided_regex": "("})
    assert caught.value.param == "guided_regex"
