"""Following a form a little way before any output depends on it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import numpy as np

from qanat.core.constraint import Matcher
from qanat.core.errors import StructuredOutputError
from qanat.structured.budget import TOKEN_CREDIT_S, TOO_COMPLEX
from qanat.structured.matcher import Words, clear_bits

NUM_TOKENS = 32
"""Of each way; the first few show how many ways a form has to go on."""
NUM_WAYS = 2
MAX_WORK_S = 0.3
"""What it may take on a processor beside what its tokens may: ten times of what a plain form takes for all."""

IMPOSSIBLE = (
    "No text has the form that is asked for: nothing may come first. Look for bounds that exclude each other."
)


def try_out(matcher: Matcher, num_mask_words: int, eos_ids: Sequence[int]) -> None:
    """Goes some ways into a form, always the same ones. The matcher is at the start again afterwards.

    Args:
        matcher: at the start of the form.
        num_mask_words: size of its masks.
        eos_ids: tokens that end an output; no way takes one.

    Raises:
        StructuredOutputError: nothing may come first, or it is too complex to follow.
    """
    words: Words = np.zeros(num_mask_words, dtype=np.int32)
    draw = random.Random(0)
    most_s = time.thread_time() + MAX_WORK_S
    for _ in range(NUM_WAYS):
        num_taken = 0
        while num_taken < NUM_TOKENS and _goes_on(matcher, words, draw, eos_ids, is_first=num_taken == 0):
            num_taken += 1
            most_s += TOKEN_CREDIT_S
            if time.thread_time() > most_s:
                raise StructuredOutputError(TOO_COMPLEX)
        matcher.rollback(num_taken)


def _goes_on(
    matcher: Matcher, words: Words, draw: random.Random, eos_ids: Sequence[int], *, is_first: bool
) -> bool:
    """Takes one of the tokens that may come; False if the way ends here."""
    try:
        has_mask = matcher.fill_mask(words)
    except StructuredOutputError as error:
        if is_first or error.message == TOO_COMPLEX:
            raise
        return False
    if not has_mask:
        return False  # every token may come, so that none can be wrong
    if is_first and not words.any():
        raise StructuredOutputError(IMPOSSIBLE)
    clear_bits(words, eos_ids)
    token_ids = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    if not len(token_ids):
        return False
    matcher.consume(int(token_ids[draw.randrange(len(token_ids))]))
    return True
