"""Tokens by which a model marks the parts of its output."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class ThinkTags:
    """Token ids that open and close a thinking block."""

    start_id: int
    end_id: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ThinkTags | None:
        """The tokenizer's tags; None if it does not have both as single tokens."""
        start_id, end_id = tokenizer.token_id("<think>"), tokenizer.token_id("</think>")
        return None if start_id is None or end_id is None else cls(start_id, end_id)
