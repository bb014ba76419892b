"""What `LLM` returns."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from qanat.core.events import GenerationEvent, PositionLogprobs


@dataclass
class Completion:
    """One generated sequence.

    Attributes:
        index: choice index in [0, n).
        text: generated text, cut at a stop string.
        token_ids: generated tokens.
        logprobs: one entry per token, if asked for.
        finish_reason: "stop", "length", "abort" or "error".
        stop_reason: the stop string or stop token id that ended it; None for end-of-sequence and length.
        error: what went wrong, with finish_reason "error".
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str = ""

    def add(self, event: GenerationEvent) -> None:
        """Appends one event of this choice."""
        self.text += event.text
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason.value
            self.stop_reason = event.stop_reason
            self.error = event.error_message


@dataclass
class Generation:
    """All sequences of one prompt.

    Attributes:
        prompt: the prompt's text, None if it came as token ids.
        prompt_token_ids: the prompt as computed.
        prompt_logprobs: one entry per prompt token, None for the first, if asked for.
        outputs: one per choice, by index.
        num_cached_tokens: prompt tokens supplied by the prefix cache.
        first_token_at, last_token_at: when the first and the last token so far came, in seconds on the clock of
            `time.perf_counter`; 0 before.
    """

    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[Completion]
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    num_cached_tokens: int = 0
    first_token_at: float = 0.0
    last_token_at: float = 0.0

    def add(self, event: GenerationEvent) -> None:
        """Appends one event."""
        if event.token_ids:
            self.last_token_at = time.perf_counter()
            self.first_token_at = self.first_token_at or self.last_token_at
        self.outputs[event.index].add(event)
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        if event.index == 0:  # other choices begin from what the first one computes
            self.num_cached_tokens = event.num_cached_tokens
