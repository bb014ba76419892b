"""The text of one choice in the making: format newlines, stop strings, and which token added what."""

from __future__ import annotations

from dataclasses import dataclass, field

from qanat.core.events import PositionLogprobs
from qanat.core.sampling_params import SamplingParams
from qanat.engine.detokenizer import StopMatch, StopStringChecker
from qanat.server.events import ReasoningDelta, ReplyEvent, ScoredToken, TextDelta, ToolCallDelta

_SPACE = " \t\r\n"


@dataclass
class News:
    """What one engine event adds to a choice."""

    events: list[ReplyEvent] = field(default_factory=list)
    reasoning: str = ""
    reasoning_tokens: list[ScoredToken] = field(default_factory=list)
    text: str = ""
    tokens: list[ScoredToken] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)

    def in_order(self, index: int) -> list[ReplyEvent]:
        """As events of the choice with this index."""
        events = list(self.events)
        if self.reasoning or self.reasoning_tokens:
            events.append(ReasoningDelta(index, self.reasoning, self.reasoning_tokens))
        if self.text or self.tokens:
            events.append(TextDelta(index, self.text, self.tokens))
        return [*events, *_joined(self.calls)]


def _joined(calls: list[ToolCallDelta]) -> list[ToolCallDelta]:
    """The same with arguments that follow each other in one piece."""
    joined: list[ToolCallDelta] = []
    for delta in calls:
        last = joined[-1] if joined else None
        if last is not None and not delta.call_id and not last.call_id and last.position == delta.position:
            joined[-1] = ToolCallDelta(delta.index, delta.position, last.arguments + delta.arguments)
        else:
            joined.append(delta)
    return joined


class NewlineTrimmer:
    """Drops newlines at both ends of a text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._has_begun = False

    def push(self, text: str) -> str:
        """Text that is certain to be inside."""
        if not self._has_begun:
            text = text.lstrip("\n")
            self._has_begun = bool(text)
        text = self._held + text
        kept = text.rstrip("\n")
        self._held = text[len(kept) :]
        return kept


class Answer:
    """The visible answer: leading newlines after reasoning, stop strings, white space around calls.

    Args:
        sampling: what the client asked for.
        holds_space: calls may come, so white space waits for the text after it: at the end of an answer with calls
            it belongs to the format.
    """

    def __init__(self, sampling: SamplingParams, *, holds_space: bool = False) -> None:
        self._sampling = sampling
        self._stops = StopStringChecker(sampling.stop, is_included=sampling.include_stop_str_in_output)
        self._holds_space = holds_space
        self._space: list[str] = []
        self._has_calls = False
        self._trimmed = ""
        self._num_fed = 0
        self._num_released = 0
        self._waiting: list[ScoredToken] = []

    @property
    def is_passing(self) -> bool:
        """True if text goes through as it is: nothing is to be dropped from it or looked for in it."""
        return not (self._trimmed or self._sampling.stop or self._holds_space or self._waiting)

    def pass_on(self, text: str, news: News) -> None:
        """Takes text without scores while `is_passing`."""
        news.text += text
        self._num_fed += len(text)
        self._num_released += len(text)

    def drop_leading_newlines(self) -> None:
        """The answer begins now, after a thinking block."""
        self._trimmed = "\n"

    def begin_call(self, news: News) -> None:
        """A call interrupts the text: what could have become a stop string cannot any more.

        White space before the call stays to part the text from what may follow, so that after it is dropped.
        """
        self._has_calls = True
        self._release(self._stops.finish(), news)
        self._trimmed = _SPACE

    def push(
        self, text: str, raw: bytes, position: PositionLogprobs | None, news: News, *, is_checked: bool
    ) -> StopMatch | None:
        """Takes one token's text; adds what is certain to `news`. Returns the stop that completed, if one did."""
        if self._trimmed:
            text, raw = text.lstrip(self._trimmed), raw.lstrip(self._trimmed.encode())
            self._trimmed = "" if text or raw else self._trimmed
        if position is not None:
            self._waiting.append(ScoredToken(position.chosen, position.top, raw, self._num_fed))
        self._num_fed += len(text)
        released = self._stops.push(text) if is_checked else text
        if isinstance(released, StopMatch):
            self._release(released.text, news)
            self._end(news)
            return released
        self._release(released, news)
        return None

    def push_silent(self, position: PositionLogprobs | None, news: News) -> None:
        """Takes a token that adds nothing to the text."""
        if position is None:
            return
        self._waiting.append(ScoredToken(position.chosen, position.top, b"", self._num_fed))
        if self._num_released == self._num_fed:
            self._show(news)

    def push_after_end(self, position: PositionLogprobs, news: News) -> None:
        """Takes a token that came before the output's end was found, and after that end."""
        news.tokens.append(ScoredToken(position.chosen, position.top, b"", self._num_fed))

    def finish(self, news: News) -> None:
        """The answer ended without a stop string."""
        self._release(self._stops.finish(), news)
        self._end(news)

    def _release(self, text: str, news: News) -> None:
        """Shows text, except white space that calls may follow, with every token that ends in it."""
        if self._holds_space:
            kept = text.rstrip()
            if not kept:
                self._space += [text] if text else []
                return
            self._space, text = [text[len(kept) :]], "".join(self._space) + kept
        if text:
            news.text += text
            self._num_released += len(text)
            self._show(news)

    def _end(self, news: News) -> None:
        """Shows or drops the white space at the end, and shows the tokens that are left.

        Those of a stop string count, but only what lies before the cut was shown; likewise with dropped space.
        """
        space = "".join(self._space)
        self._space = []
        if space and not self._has_calls:
            news.text += space
            self._num_released += len(space)
        for token in self._waiting:
            num_shown = max(0, self._num_released - token.text_offset)
            is_cut = token.text_offset + len(token.text_bytes.decode(errors="replace")) > self._num_released
            shown = token.text_bytes.decode(errors="replace")[:num_shown].encode()
            raw = shown if is_cut else token.text_bytes
            news.tokens.append(ScoredToken(token.chosen, token.top, raw, token.text_offset))
        self._waiting = []

    def _show(self, news: News) -> None:
        ends = [token.text_offset for token in self._waiting[1:]] + [self._num_fed]
        num_shown = sum(1 for end in ends if end <= self._num_released) if self._waiting else 0
        news.tokens += self._waiting[:num_shown]
        del self._waiting[:num_shown]
