"""What models write when they call tools, cut into tokens in every way, and answers put together again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qanat.core.events import GenerationEvent, LogprobEntry, PositionLogprobs
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.server.assembler import ChatAssembler
from qanat.server.events import Finish, ReasoningDelta, ReplyEvent, ScoredToken, TextDelta, ToolCallDelta
from qanat.server.tags import ThinkTags
from qanat.server.tools.calls import CallReader
from qanat.server.tools.parser import CallFormat, bare_openings, parser_factory
from tests.support.scripted_engine import END_OF_TURN, Piece, ScriptedTokenizer

TOKENIZER = ScriptedTokenizer()
TAG = re.compile("(<tool_call>|</tool_call>|<think>|</think>)")
CUTS = (1, 2, 3, 5, 8, 9999)


class TextTagTokenizer(ScriptedTokenizer):
    """A vocabulary without tokens for the tags of calls."""

    def token_id(self, text: str) -> int | None:
        """The token with this spelling, if there is one."""
        return None if "tool_call" in text else super().token_id(text)


TEXT_TAG_TOKENIZER = TextTagTokenizer()


def tool(name: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A definition in OpenAI's form."""
    function: dict[str, Any] = {"name": name}
    if parameters is not None:
        function["parameters"] = dict(parameters)
    return {"type": "function", "function": function}


def hermes_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as Qwen3 writes it."""
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def xml_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as Qwen3.5 writes it."""
    lines = [
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    ]
    return f"<tool_call>\n<function={name}>\n{''.join(lines)}</function>\n</tool_call>"


def pieces_of(text: str, size: int = 1) -> list[Piece]:
    """Tags as tokens of their own, the rest in pieces of so many characters."""
    pieces: list[Piece] = []
    for part in TAG.split(text):
        if TAG.fullmatch(part):
            pieces.append(part)
        else:
            pieces += [part[i : i + size] for i in range(0, len(part), size)]
    return pieces


def byte_ids(text: str, sizes: Sequence[int], tokenizer: ScriptedTokenizer = TOKENIZER) -> list[int]:
    """Tokens of so many bytes in turn, tags apart; characters may be spread over them."""
    ids: list[int] = []
    turn = 0
    for part in TAG.split(text):
        if TAG.fullmatch(part):
            ids.append(tokenizer.piece_id(part))
            continue
        raw = part.encode()
        while raw:
            size = sizes[turn % len(sizes)]
            turn += 1
            ids.append(tokenizer.piece_id(raw[:size]))
            raw = raw[size:]
    return ids


@dataclass
class Reply:
    """One choice, put together from its events."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    tokens: list[ScoredToken] = field(default_factory=list)
    reasoning_tokens: list[ScoredToken] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def parsed(self) -> list[tuple[str, Any]]:
        """Calls with their arguments read."""
        return [(name, json.loads(arguments)) for name, arguments in self.calls]

    @property
    def finish_reason(self) -> str:
        """As a client would see it."""
        assert self.finish is not None
        return "tool_calls" if self.finish.is_tool_calls else self.finish.reason.value


def assembler(
    call_format: CallFormat,
    tools: Sequence[Mapping[str, Any]],
    *,
    tokenizer: ScriptedTokenizer = TOKENIZER,
    is_open: bool = False,
    max_calls: int | None = None,
    **sampling: Any,
) -> ChatAssembler:
    """The real thing for one choice."""
    openings = bare_openings(call_format, tools)
    calls = CallReader(0, parser_factory(call_format, tools), max_calls, openings)
    params = SamplingParams(max_tokens=None, **sampling)
    return ChatAssembler(0, tokenizer, params, ThinkTags.of(tokenizer), is_open, calls)


def scored(tokenizer: ScriptedTokenizer, token_id: int) -> PositionLogprobs:
    """Some log-probability."""
    raw = tokenizer.token_bytes(token_id)
    return PositionLogprobs(LogprobEntry(token_id, raw.decode(errors="replace"), list(raw), -0.5, 1), [])


def events_of(
    reader: ChatAssembler,
    token_ids: Sequence[int],
    *,
    step: int = 1,
    reason: FinishReason = FinishReason.STOP,
    tokenizer: ScriptedTokenizer = TOKENIZER,
) -> Iterator[ReplyEvent]:
    """Events for these tokens, so many per step; a STOP comes with its token."""
    ids = [*token_ids, tokenizer.piece_id(END_OF_TURN)] if reason is FinishReason.STOP else list(token_ids)
    for start in range(0, max(1, len(ids)), step):
        part = ids[start : start + step]
        event = GenerationEvent(
            token_ids=part,
            logprobs=[scored(tokenizer, token_id) for token_id in part],
            finish_reason=reason if start + step >= len(ids) else None,
        )
        news = reader.push(event)
        yield from news
        if news and isinstance(news[-1], Finish):
            return


def folded(events: Iterator[ReplyEvent]) -> Reply:
    """The whole choice; checks the form of the stream on the way."""
    reply = Reply()
    for event in events:
        assert reply.finish is None
        if isinstance(event, TextDelta):
            reply.text += event.text
            reply.tokens += event.tokens
        elif isinstance(event, ReasoningDelta):
            reply.reasoning += event.text
            reply.reasoning_tokens += event.tokens
        elif isinstance(event, ToolCallDelta):
            if event.call_id:
                assert event.position == len(reply.calls) and event.name and not event.arguments
                assert re.fullmatch(r"call_[0-9a-f]{24}", event.call_id)
                reply.calls.append((event.name, ""))
            else:
                assert event.position == len(reply.calls) - 1 and not event.name
                name, arguments = reply.calls[-1]
                reply.calls[-1] = (name, arguments + event.arguments)
        else:
            assert isinstance(event, Finish)
            reply.finish = event
    assert reply.finish is not None
    return reply


def read(
    call_format: CallFormat,
    text: str,
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    reason: FinishReason = FinishReason.STOP,
    **options: Any,
) -> Reply:
    """The reply that a text leads to; checked to be the same for every cut, with tags as tokens and as text."""
    replies = []
    for size in CUTS:
        ids = [TOKENIZER.piece_id(piece) for piece in pieces_of(text, size)]
        for step in (1, 3, 9999):
            events = events_of(assembler(call_format, tools, **options), ids, step=step, reason=reason)
            replies.append(folded(events))
        if "think>" not in text:
            plain = TEXT_TAG_TOKENIZER
            ids = [plain.piece_id(text[i : i + size]) for i in range(0, len(text), size)]
            reader = assembler(call_format, tools, tokenizer=plain, **options)
            replies.append(folded(events_of(reader, ids, reason=reason, tokenizer=plain)))
    first = replies[0]
    for reply in replies[1:]:
        assert (reply.text, reply.reasoning, reply.calls) == (first.text, first.reasoning, first.calls)
        assert reply.finish_reason == first.finish_reason
    return first
