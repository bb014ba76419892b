"""Vocabularies for tests: small enough to see through."""

from __future__ import annotations

import numpy as np

from qanat.core.constraint import Matcher
from qanat.structured.vocabulary import Vocabulary

NUM_BYTES = 256
WORDS = (b'{"', b'":', b"true", b"\n\n", b"ab", b" ", b"answer")
ADDED = (b"<|im_end|>", b"<|endoftext|>", b"<think>", b"</think>", b"<tool_call>", b"</tool_call>")
TOKENS = [*(bytes([byte]) for byte in range(NUM_BYTES)), *WORDS, b"", *ADDED]
"""One token per byte, some words, an id without text, the added tokens."""


def token(text: str | bytes) -> int:
    """Id of the last token that is spelled so."""
    spelling = text.encode() if isinstance(text, str) else text
    return len(TOKENS) - 1 - TOKENS[::-1].index(spelling)


EOS, EOT, THINK, END_THINK = (token(text) for text in ADDED[:4])
VOCABULARY = Vocabulary(TOKENS, [token(text) for text in ADDED], [EOS, EOT])


def allowed(matcher: Matcher) -> set[bytes]:
    """Spellings of all tokens that may come next."""
    words = np.zeros(VOCABULARY.num_mask_words, dtype=np.int32)
    if not matcher.fill_mask(words):
        return set(TOKENS)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert not bits[len(TOKENS) :].any()
    return {TOKENS[i] for i in np.flatnonzero(bits)}


def take(matcher: Matcher, text: str | bytes) -> None:
    """Consumes a text byte by byte."""
    for byte in text.encode() if isinstance(text, str) else text:
        matcher.consume(byte)
