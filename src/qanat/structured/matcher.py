"""Reasoning before a form: it is free, the form begins after it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from qanat.core.constraint import Constraint, Matcher, Thinking

Words: TypeAlias = npt.NDArray[np.int32]
"""A mask: little-endian bits in 32-bit words, a set bit allows a token."""


class Phase(enum.IntEnum):
    """Where an output stands: before its first token, inside the thoughts, right after them, in the form."""

    START = 0
    THOUGHTS = 1
    GAP = 2
    FORM = 3


class ThinkingGate:
    """A matcher in front of which there may be thoughts.

    The first token may open them where the prompt has not; they end with their end tag, and one token of blank lines
    may follow. Inside, everything may come but an end of the output: whoever thinks still owes the answer its form.
    A tool call ends them too, as models begin one without closing their thoughts.

    Args:
        form: matcher at the start of the form.
        constraint: says where the output begins, and the tags.
        inside: what may come inside the thoughts; not changed.
        scratch: room for a mask; may be shared with other gates of the same thread.
    """

    def __init__(self, form: Matcher, constraint: Constraint, inside: Words, scratch: Words) -> None:
        self._form = form
        self._constraint = constraint
        self._phase = Phase.THOUGHTS if constraint.thinking is Thinking.OPEN else Phase.START
        self._num_tokens = 0
        self._num_before_form = 0
        self._changes: list[
            tuple[int, Phase]
        ] = []  # for each change: the token that made it, the phase before
        self._inside = inside
        self._scratch = scratch

    def fill_mask(self, words: Words) -> bool:
        """See `Matcher`."""
        if self._phase is Phase.THOUGHTS:
            words[:] = self._inside
            return True
        if not self._form.fill_mask(words):
            return False
        if self._phase is Phase.START and self._constraint.think_start_id is not None:
            set_bits(words, [self._constraint.think_start_id])
        elif self._phase is Phase.GAP:
            set_bits(words, self._constraint.blank_ids)
        return True

    def consume(self, token_id: int) -> None:
        """See `Matcher`; a blank line that the form allows too belongs to the form."""
        phase = self._phase
        if phase is Phase.THOUGHTS:
            if token_id == self._constraint.think_end_id:
                self._enter(Phase.GAP)
            elif token_id == self._constraint.call_start_id and self._is_in_form(token_id):
                self._begin_form(token_id)
        elif phase is Phase.START and token_id == self._constraint.think_start_id:
            self._enter(Phase.THOUGHTS)
        elif phase is Phase.GAP and token_id in self._constraint.blank_ids and not self._is_in_form(token_id):
            self._enter(Phase.FORM)
            self._num_before_form = self._num_tokens + 1
        elif phase is not Phase.FORM:
            self._begin_form(token_id)
        else:
            self._form.consume(token_id)
        self._num_tokens += 1

    def rollback(self, num_tokens: int) -> None:
        """See `Matcher`."""
        left = self._num_tokens - num_tokens
        if self._phase is Phase.FORM:
            self._form.rollback(self._num_tokens - max(left, self._num_before_form))
        while self._changes and self._changes[-1][0] >= left:
            _, self._phase = self._changes.pop()
        self._num_tokens = left

    def forced(self) -> list[int]:
        """See `Matcher`; before the form there is always a choice."""
        return self._form.forced() if self._phase is Phase.FORM else []

    def _begin_form(self, token_id: int) -> None:
        self._form.consume(token_id)
        self._enter(Phase.FORM)
        self._num_before_form = self._num_tokens

    def _enter(self, phase: Phase) -> None:
        self._changes.append((self._num_tokens, self._phase))
        self._phase = phase

    def _is_in_form(self, token_id: int) -> bool:
        if not self._form.fill_mask(self._scratch):
            return True
        return has_bit(self._scratch, token_id)


def set_bits(words: Words, token_ids: Iterable[int]) -> None:
    """Allows tokens."""
    for token_id in token_ids:
        words[token_id // 32] |= _bit(token_id)


def clear_bits(words: Words, token_ids: Iterable[int]) -> None:
    """Forbids tokens; ids past the mask are left out."""
    for token_id in token_ids:
        if token_id // 32 < len(words):
            words[token_id // 32] &= ~_bit(token_id)


def has_bit(words: Words, token_id: int) -> bool:
    """True if the token is allowed."""
    return bool(words[token_id // 32] & _bit(token_id))


def _bit(token_id: int) -> np.int32:
    bit = 1 << (token_id % 32)
    return np.int32(bit if bit < 2**31 else bit - 2**32)
