"""A compiled form on its way to the sampler, and what the sampler asks of it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Thinking(enum.IntEnum):
    """Where the output stands to the reasoning when it begins; the renderer of the prompt knows.

    NONE: the answer begins at once. OPEN: the prompt opened the block of thoughts. OPTIONAL: the model may open one.
    """

    NONE = 0
    OPEN = 1
    OPTIONAL = 2


class Constraint(msgspec.Struct, frozen=True, weakref=True):
    """What travels with a request: a form that has been compiled once, so that compiling it again works.

    Attributes:
        backend: name of the library that understands `grammar`.
        grammar: the form in that library's words.
        thinking: reasoning is free; the form begins after it.
        think_start_id: token that opens reasoning.
        think_end_id: token that ends reasoning.
        blank_ids: of these, one may stand between the end of the reasoning and the form.
        call_start_id: token that opens a tool call; it ends the reasoning too, if the form may begin with it.
    """

    backend: str
    grammar: str
    thinking: Thinking = Thinking.NONE
    think_start_id: int | None = None
    think_end_id: int | None = None
    blank_ids: list[int] = []
    call_start_id: int | None = None


class Matcher(Protocol):
    """Follows one output along its form. Masks are little-endian bits in 32-bit words, a set bit allows a token."""

    def fill_mask(self, words: npt.NDArray[np.int32]) -> bool:
        """Writes which tokens may come next.

        Args:
            words: [ceil(V / 32)], contiguous; written whole.

        Returns:
            False, and nothing is written, if every token may come.

        Raises:
            StructuredOutputError: the form became too complex to follow.
        """
        ...

    def consume(self, token_id: int) -> None:
        """Takes the token that was chosen.

        Raises:
            StructuredOutputError: the form does not allow it.
        """
        ...

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last tokens."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next, as far as there is no choice."""
        ...


class MatcherFactory(Protocol):
    """Makes matchers; handed to the worker from above, as the libraries behind it are none of its business."""

    def matcher(self, constraint: Constraint) -> Matcher:
        """A matcher at the start of the form.

        Raises:
            StructuredOutputError: it cannot be compiled.
        """
        ...
