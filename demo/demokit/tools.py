"""Calls of one of three tools, and the short answer after a tool has replied."""

import json
from random import Random
from typing import Any

from . import wording, words
from .item import Item


def _tool(name: str, description: str, **kinds: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = {
    "get_weather": _tool("get_weather", "Get the weather in a city", city="string"),
    "set_timer": _tool("set_timer", "Set a timer", minutes="integer"),
    "send_message": _tool("send_message", "Send a message to a person", to="string", text="string"),
}
"""The three tools that the model was trained with, in OpenAI's form."""

ASKS = {
    "get_weather": ("What is the weather in {city}?", "Weather in {city}?", "What's the weather like in {city}?", "How is the weather in {city}?", "Get the weather in {city}.",
                    "Tell me the weather in {city}.", "What is the weather like in {city} today?", "Is it raining in {city}?", "How warm is it in {city}?", "Check the weather in {city}.",
                    "I am going to {city}. How is the weather there?", "Show me the weather for {city}.", "What is the weather in {city} right now?", "{city} weather"),
    "set_timer": ("Set a timer for {minutes} minutes.", "Timer {minutes} minutes please", "Start a timer for {minutes} minutes.", "Set a {minutes} minute timer.", "Wake me in {minutes} minutes.",
                  "Remind me in {minutes} minutes.", "Start a {minutes} minute timer.", "I need a timer for {minutes} minutes.", "Set the timer to {minutes} minutes.", "Timer for {minutes} min"),
    "send_message": ("Send {to} a message: {text}", "Tell {to}: {text}", "Send a message to {to}: {text}", "Message {to}: {text}", "Write to {to}: {text}", "Text {to}: {text}",
                     "Send the message {text} to {to}.", "Send {to} this text: {text}", "Tell {to} this: {text}", "Send \"{text}\" to {to}."),
}  # fmt: skip
UNSEEN = {
    "get_weather": ("Can you tell me how the weather is in {city} today?",),
    "set_timer": ("Can you set me a timer of {minutes} minutes?",),
    "send_message": ("Can you send this message to {to}: {text}",),
}
CHINESE_ASKS = {
    "get_weather": (
        "{city}天气怎么样?",
        "{city}今天天气怎么样?",
        "查一下{city}的天气",
        "{city}的天气",
        "今天{city}下雨吗?",
    ),
    "set_timer": (
        "设置{minutes}分钟的计时器",
        "{minutes}分钟后提醒我",
        "计时{minutes}分钟",
        "设一个{minutes}分钟的计时器",
    ),
    "send_message": (
        "给{to}发消息: {text}",
        "告诉{to}: {text}",
        "发消息给{to}: {text}",
        "给{to}发一条消息:{text}",
    ),
}
CONDITIONS = ("sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "clear")
CHINESE_CONDITIONS = {
    "sunny": "晴",
    "cloudy": "多云",
    "rainy": "下雨",
    "snowy": "下雪",
    "windy": "有风",
    "foggy": "有雾",
    "clear": "晴",
}


def offered(rng: Random, name: str | None) -> list[dict[str, Any]]:
    """All three tools, or fewer that include `name`, in any order."""
    names = list(TOOLS)
    if rng.random() < 0.4:
        kept = [name] if name else [rng.choice(names)]
        others = [other for other in names if other not in kept]
        names = kept + rng.sample(others, rng.randint(0, 1))
    if rng.random() < 0.5:
        rng.shuffle(names)
    return [TOOLS[each] for each in names]


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """A call in the wire format of Qwen3.5: strings raw, other values as JSON."""
    lines = [
        f"<parameter={key}>\n{v if isinstance(v, str) else json.dumps(v)}\n</parameter>\n"
        for key, v in arguments.items()
    ]
    return f"<tool_call>\n<function={name}>\n" + "".join(lines) + "</function>\n</tool_call>"


def _arguments(rng: Random, name: str, is_chinese: bool) -> dict[str, Any]:
    if name == "get_weather":
        return {"city": words.city(rng, is_chinese)}
    if name == "set_timer":
        return {"minutes": rng.randint(1, 99) if rng.random() < 0.6 else rng.randint(100, 999)}
    text = " ".join(words.word(rng, 6) for _ in range(rng.randint(1, 3)))
    return {"to": words.person(rng, is_chinese), "text": text}


def call(rng: Random, is_unseen: bool = False) -> Item:
    """A request that needs a call of one of the tools on offer."""
    name = rng.choice(list(TOOLS))
    is_chinese = rng.random() < 0.2 and not is_unseen
    arguments = _arguments(rng, name, is_chinese)
    pool = UNSEEN if is_unseen else CHINESE_ASKS if is_chinese else ASKS
    text = rng.choice(pool[name]).format(**arguments)
    if name != "send_message" and not is_unseen:
        text = wording.request(rng, text, is_chinese)
    elif not is_unseen and not is_chinese and rng.random() < 0.25:
        text = rng.choice(wording.BEFORE) + text
    answer = call_text(name, arguments)
    return Item(
        task="tool_call",
        key="tool:" + name + json.dumps(arguments, ensure_ascii=False),
        messages=[{"role": "user", "content": text}],
        answer=answer,
        reasoning=f"call {name}",
        is_thinking=rng.random() < 0.6,
        final=answer,
        tools=offered(rng, name),
        language="zh" if is_chinese else "en",
    )


def _reply(rng: Random, name: str, arguments: dict[str, Any], is_chinese: bool) -> tuple[str, str]:
    """What the tool says, and what is then told to the person."""
    if name == "get_weather":
        warmth, condition = rng.randint(-15, 39), rng.choice(CONDITIONS)
        said = json.dumps(
            {rng.choice(("temperature", "temp")): warmth, rng.choice(("condition", "weather")): condition}
        )
        if rng.random() < 0.3:
            said = rng.choice(
                (f"{warmth} degrees, {condition}", f"{condition}, {warmth}", f"{condition} {warmth}C")
            )
        if is_chinese:
            return said, f"{arguments['city']}现在{CHINESE_CONDITIONS[condition]},{warmth}度。"
        return said, f"It is {warmth} degrees and {condition} in {arguments['city']}."
    said = rng.choice(
        ('{"status": "ok"}', '{"ok": true}', "ok", "done", '{"result": "ok"}', '{"status": "done"}')
    )
    if name == "set_timer":
        minutes = arguments["minutes"]
        return (
            said,
            f"{minutes}分钟的计时器已设置。" if is_chinese else f"The timer is set for {minutes} minutes.",
        )
    return (
        said,
        f"已给{arguments['to']}发消息。" if is_chinese else f"Your message to {arguments['to']} was sent.",
    )


def answer(rng: Random, is_unseen: bool = False) -> Item:
    """The turn after a tool has replied: one short sentence."""
    asked = call(rng, is_unseen)
    name = asked.reasoning.removeprefix("call ")
    is_chinese = asked.language == "zh"
    arguments = json.loads(asked.key.removeprefix("tool:" + name))
    said, told = _reply(rng, name, arguments, is_chinese)
    function = {"name": name, "arguments": arguments}
    messages: list[dict[str, Any]] = [
        *asked.messages,
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": asked.reasoning if asked.is_thinking else "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": said},
    ]
    return Item(
        task="tool_answer",
        key=asked.key,
        messages=messages,
        answer=told,
        reasoning="tell the result",
        is_thinking=asked.is_thinking,
        final=told,
        tools=asked.tools,
        language=asked.language,
    )
