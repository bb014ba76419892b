"""The one event stream that every answer is made from: a JSON answer is a fold over what a stream sends."""

from __future__ import annotations

import msgspec

from qanat.core.events import LogprobEntry, PositionLogprobs
from qanat.core.request import FinishReason


class ScoredToken(msgspec.Struct, frozen=True):
    """A token with its log-probability and its place in the text.

    Attributes:
        chosen: the token.
        top: alternatives, most likely first.
        text_bytes: what it added to the text that the client sees; empty if it added nothing.
        text_offset: characters before it.
    """

    chosen: LogprobEntry
    top: list[LogprobEntry]
    text_bytes: bytes
    text_offset: int


class TextDelta(msgspec.Struct, frozen=True):
    """New answer text of one choice, with the tokens behind it if logprobs were asked for."""

    index: int
    text: str
    tokens: list[ScoredToken] = []


class ReasoningDelta(msgspec.Struct, frozen=True):
    """New reasoning text of one choice."""

    index: int
    text: str
    tokens: list[ScoredToken] = []


class ToolCallDelta(msgspec.Struct, frozen=True):
    """News of one tool call of one choice.

    Attributes:
        index: choice.
        position: which call of the choice, from 0.
        arguments: JSON text that follows what was said before.
        call_id: in the first event of a call, else empty.
        name: the function, likewise.
    """

    index: int
    position: int
    arguments: str
    call_id: str = ""
    name: str = ""


class PromptScores(msgspec.Struct, frozen=True):
    """Log-probabilities of the prompt of one choice, before its first text; None at the first position."""

    index: int
    positions: list[PositionLogprobs | None]


class Finish(msgspec.Struct, frozen=True):
    """The last event of a choice, and the only one of this kind.

    Attributes:
        index: choice.
        reason: why it ended; never ERROR, which is raised.
        stop_reason: the stop string or stop token id that ended it, if one did.
        num_output_tokens: tokens generated.
        num_reasoning_tokens: of those, tokens of the thinking block, its tags included.
        num_cached_tokens: prompt tokens supplied by the prefix cache.
        is_tool_calls: the model's turn ended with calls, all of them complete.
    """

    index: int
    reason: FinishReason
    stop_reason: str | int | None
    num_output_tokens: int
    num_reasoning_tokens: int
    num_cached_tokens: int
    is_tool_calls: bool = False


ReplyEvent = TextDelta | ReasoningDelta | ToolCallDelta | PromptScores | Finish
"""Everything that can be said about a choice."""


class ReplyStep(msgspec.Struct, frozen=True):
    """What one event of the engine means for one choice. What is said in it belongs together.

    Attributes:
        index: choice.
        events: what is to be said, in order.
        token_ids: new tokens; those of all steps of a choice are its output.
        num_reasoning_tokens: tokens of the thinking block so far.
        num_cached_tokens: prompt tokens supplied by the prefix cache.
        is_prior: the tokens are of an earlier request that this one resumes; whoever reads a stream has had them.
        num_drafted, num_accepted: drafts verified for this choice so far, and those of them that were right.
    """

    index: int
    events: list[ReplyEvent]
    token_ids: list[int]
    num_reasoning_tokens: int
    num_cached_tokens: int
    is_prior: bool = False
    num_drafted: int = 0
    num_accepted: int = 0

    @property
    def is_last(self) -> bool:
        """True if the choice ends with it."""
        return bool(self.events) and isinstance(self.events[-1], Finish)
