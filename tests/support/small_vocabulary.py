"""A vocabulary of 96 tokens, as many as the tiny models have: letters enough for JSON, and some added tokens."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.core.constraint import Constraint, Thinking
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.backend import make_backend
from qanat.structured.factory import FormFactory
from qanat.structured.vocabulary import Vocabulary

ADDED = ("<eos>", "<think>", "</think>")
TOKENS = [chr(code).encode() for code in range(32, 122)] + [
    b"\n",
    b"{",
    b"}",
    *(text.encode() for text in ADDED),
]
EOS, THINK, END_THINK = range(93, 96)
NEWLINE = 90
VOCABULARY = Vocabulary(TOKENS, [EOS, THINK, END_THINK], [EOS])
BACKEND = make_backend("guidance", VOCABULARY)


def new_factory() -> FormFactory:
    return FormFactory(lambda: VOCABULARY)


def constraint_of(thinking: Thinking = Thinking.NONE, **form: object) -> Constraint:
    """A compiled form, as the front end sends it."""
    grammar = BACKEND.grammar(StructuredOutputsParams(**form))  # type: ignore[arg-type]
    return Constraint("guidance", grammar, thinking, THINK, END_THINK, [NEWLINE])


def text_of(token_ids: Sequence[int]) -> str:
    return b"".join(TOKENS[token_id] for token_id in token_ids).decode()


def ids_of(text: str) -> list[int]:
    return [TOKENS.index(character.encode()) for character in text]
