"""Completions and chat completions as data, out of one JSON object or out of the chunks of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""Where engines put what a model thinks: the newer name first."""


class MisfitError(Exception):
    """An answer has another shape than the OpenAI API says; the text says where."""


class UsageError(MisfitError):
    """The counts of tokens are missing, or are none."""


@dataclass
class ToolCall:
    """A call that the model asks for; `arguments` is JSON text."""

    name: str = ""
    arguments: str = ""


@dataclass
class Choice:
    """One of the answers to a request.

    Attributes:
        text: of the answer itself.
        reasoning: what stands in a field for it.
        reasoning_field: the name of that field; empty if there was none with text.
        tool_calls: in order.
        finish_reason: None if none came.
        logprobs: as the engine gave them.
        prompt_logprobs: as the engine gave them.
    """

    text: str = ""
    reasoning: str = ""
    reasoning_field: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str | None = None
    logprobs: Any = None
    prompt_logprobs: Any = None


@dataclass
class Reply:
    """An answer, whole or put together.

    Attributes:
        choices: by index.
        usage: counts of tokens; None if none came.
        num_text_chunks: chunks of a stream that brought text; 0 for a whole answer.
        first_text_s: seconds until the first of them; None without any.
        seconds: until the end.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Mapping[str, Any] | None = None
    num_text_chunks: int = 0
    first_text_s: float | None = None
    seconds: float = 0.0

    @property
    def choice(self) -> Choice:
        """The first one."""
        return self.choices[0]

    def count(self, name: str) -> int:
        """A count of the usage, such as "prompt_tokens".

        Raises:
            UsageError: it is not there, or no count.
        """
        value = None if self.usage is None else self.usage.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(f"usage.{name} is {value!r}")
        return value


def read_reply(value: Any, *, is_chat: bool) -> Reply:
    """A whole answer.

    Raises:
        MisfitError: it has another shape.
    """
    reply = Reply(usage=_usage(value))
    for raw in _choices(value):
        choice = reply.choices.setdefault(_index(raw), Choice())
        _add(choice, _mapping(raw.get("message"), "message") if is_chat else raw, is_chat=is_chat)
        _end(choice, raw)
    if not reply.choices or sorted(reply.choices) != list(range(len(reply.choices))):
        raise MisfitError(f"the choices have the indices {sorted(reply.choices)}")
    prompt_logprobs = value.get("prompt_logprobs")
    if prompt_logprobs is not None:
        reply.choice.prompt_logprobs = prompt_logprobs
    return reply


def add_chunk(reply: Reply, value: Any, *, is_chat: bool, seconds: float) -> None:
    """Adds a chunk of a stream that came `seconds` after the request.

    Raises:
        MisfitError: it has another shape.
    """
    reply.usage = _usage(value) or reply.usage
    has_text = False
    for raw in _choices(value):
        choice = reply.choices.setdefault(_index(raw), Choice())
        part = _mapping(raw.get("delta"), "delta") if is_chat else raw
        has_text = _add(choice, part, is_chat=is_chat) or has_text
        _end(choice, raw)
    if has_text:
        reply.num_text_chunks += 1
        if reply.first_text_s is None:
            reply.first_text_s = seconds


def _choices(value: Any) -> Sequence[Mapping[str, Any]]:
    choices = _mapping(value, "the answer").get("choices")
    if not isinstance(choices, list):
        raise MisfitError("it has no list of choices")
    return [_mapping(choice, "a choice") for choice in choices]


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MisfitError(f"{what} is {_kind(value)} instead of an object")
    return value


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _index(raw: Mapping[str, Any]) -> int:
    index = raw.get("index", 0)
    if not isinstance(index, int) or isinstance(index, bool):
        raise MisfitError(f"a choice has the index {index!r}")
    return index


def _usage(value: Any) -> Mapping[str, Any] | None:
    usage = _mapping(value, "the answer").get("usage")
    return None if usage is None else _mapping(usage, "usage")


def _text(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name)
    if value is not None and not isinstance(value, str):
        raise MisfitError(f"{name} is {_kind(value)} instead of a text")
    return value or ""


def _add(choice: Choice, part: Mapping[str, Any], *, is_chat: bool) -> bool:
    """Adds texts and tool calls; True if there was any text."""
    text = _text(part, "content" if is_chat else "text")
    choice.text += text
    pieces = {name: _text(part, name) for name in REASONING_FIELDS if is_chat}
    # Servers that write both names write the same text twice.
    name = next((name for name, piece in pieces.items() if piece), "")
    choice.reasoning += pieces.get(name, "")
    choice.reasoning_field = choice.reasoning_field or name
    calls = part.get("tool_calls") or []
    if not isinstance(calls, list):
        raise MisfitError("tool_calls is no list")
    for place, raw in enumerate(calls):
        _add_call(choice, _mapping(raw, "a tool call"), place)
    return bool(text or name)


def _add_call(choice: Choice, raw: Mapping[str, Any], place: int) -> None:
    index = raw.get("index", place)
    if not isinstance(index, int) or not 0 <= index <= len(choice.tool_calls):
        raise MisfitError(f"a tool call has the index {index!r} after {len(choice.tool_calls)} calls")
    if index == len(choice.tool_calls):
        choice.tool_calls.append(ToolCall())
    function = _mapping(raw.get("function"), "the function of a tool call")
    choice.tool_calls[index].name += _text(function, "name")
    choice.tool_calls[index].arguments += _text(function, "arguments")


def _end(choice: Choice, raw: Mapping[str, Any]) -> None:
    reason = raw.get("finish_reason")
    if reason is not None:
        if choice.finish_reason is not None:
            raise MisfitError("a choice ended twice")
        choice.finish_reason = str(reason)
    choice.logprobs = raw.get("logprobs") or choice.logprobs
    choice.prompt_logprobs = raw.get("prompt_logprobs") or choice.prompt_logprobs
