"""What a client has got of a stream so far: enough to go on with it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ChoiceSoFar:
    """One choice.

    Attributes:
        token_ids: of its output, where the engine tells them.
        texts: pieces of its visible text, where it does not.
        num_tokens: of its output; a lower bound where the engine does not count them.
        num_told: of these, up to the last that the client could see something of.
        has_news: the client has got something of it, be it text, ids or log-probabilities.
        has_reasoning: a thinking block was sent.
        has_calls: a tool call was begun.
        is_finished: its finish_reason was sent.
        is_absent: the client itself resumes a request of which this choice has ended.
    """

    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    num_tokens: int = 0
    num_told: int = 0
    has_news: bool = False
    has_reasoning: bool = False
    has_calls: bool = False
    is_finished: bool = False
    is_absent: bool = False

    @property
    def text(self) -> str:
        """All of its visible text."""
        return "".join(self.texts)


@dataclass(slots=True)
class Journal:
    """All choices, and what every chunk of the stream has in common.

    Attributes:
        choices: by index.
        id, created, model: of the first chunk; later ones repeat them.
        prefix: the first chunk's bytes up to its choices, of an engine whose chunks all begin alike.
        prompt_token_ids: as the engine told them.
        usage: of the whole stream, as it was told last.
        has_usage_chunk: the last chunk of a stream, with usage and without choices, was sent.
        is_done: the mark of a complete stream was seen.
        is_failed: an error that is the request's own fault was passed on; nothing follows it.
        num_new_tokens: since the last break.
        gap: why the stream cannot be continued although its request could; empty if nothing is in the way.
    """

    choices: dict[int, ChoiceSoFar] = field(default_factory=dict)
    id: Any = ""
    created: Any = 0
    model: Any = ""
    prefix: bytes = b""
    prompt_token_ids: list[int] | None = None
    usage: dict[str, Any] | None = None
    has_usage_chunk: bool = False
    is_done: bool = False
    is_failed: bool = False
    num_new_tokens: int = 0
    gap: str = ""

    def choice(self, index: int) -> ChoiceSoFar:
        """The choice of that index, begun if it is new."""
        so_far = self.choices.get(index)
        if so_far is None:
            so_far = self.choices[index] = ChoiceSoFar()
        return so_far

    def begin_resumed(self, outputs: Sequence[Sequence[int] | None]) -> None:
        """The client's own request resumes another: these are its choices' tokens before the first chunk."""
        for index, token_ids in enumerate(outputs):
            so_far = self.choice(index)
            if token_ids is None:
                so_far.is_absent = so_far.is_finished = True
            else:
                so_far.token_ids = list(token_ids)

    def has_ended(self, num_choices: int) -> bool:
        """Every choice has its finish_reason."""
        if len(self.choices) < num_choices:
            return False
        return all(so_far.is_finished for so_far in self.choices.values())

    @property
    def is_fresh(self) -> bool:
        """The client has got nothing that would come twice if the request began anew."""
        return not any(so_far.has_news or so_far.is_finished for so_far in self.choices.values())

    def forget_untold(self) -> None:
        """The stream goes on from what the client has; what came behind that is computed again."""
        for so_far in self.choices.values():
            so_far.num_tokens = so_far.num_told

    @property
    def num_tokens(self) -> int:
        """Output tokens of all choices."""
        return sum(so_far.num_tokens for so_far in self.choices.values())
