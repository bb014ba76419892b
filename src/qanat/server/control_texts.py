"""Texts in a conversation that spell a control token, such as the end of a turn: they stay texts.

A prompt is rendered as one text and then tokenised, so whoever writes into a message, a document's author included,
could otherwise end a turn and begin another one in somebody else's name. A seam is put inside each such spelling before
rendering, and the rendered text is tokenised in the pieces between the seams, none of which spells a token.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from qanat.engine.tokenizer import Tokenizer

_READ_BY_TEMPLATES = re.compile(r"</?(think|tool_call|tool_response)>")


class ControlTexts:
    """Knows how a vocabulary spells its control tokens; tags that templates look for in messages are none of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [tokenizer.token_bytes(token_id).decode() for token_id in tokenizer.special_token_ids]
        spellings = [text for text in texts if len(text) > 1 and not _READ_BY_TEMPLATES.fullmatch(text)]
        tails = {text[:end] for text in spellings for end in range(1, len(text))}
        whole, tail = (
            "|".join(map(re.escape, sorted(each, key=len, reverse=True))) for each in (spellings, tails)
        )
        # A value may end in a beginning that the template, or the next part, makes whole.
        self._pattern = re.compile(f"{whole}|(?:{tail})\\Z") if spellings else None

    def seamed(self, values: Sequence[Any]) -> tuple[list[Any], str]:
        """The same values with a seam in each spelling, and the seam; an empty one where there are none.

        Args:
            values: JSON-like.
        """
        if self._pattern is None:
            return list(values), ""
        seam = f"qanat-seam-{secrets.token_hex(8)}"
        found, num_seams = _seamed(list(values), self._pattern, seam)
        return found, seam if num_seams else ""


def _seamed(value: Any, pattern: re.Pattern[str], seam: str) -> tuple[Any, int]:
    """The value with seams after the first character of each match, and how many there are."""
    if isinstance(value, str):
        return pattern.subn(lambda match: match[0][0] + seam + match[0][1:], value)
    if isinstance(value, Mapping):
        pairs = [(_seamed(key, pattern, seam), _seamed(item, pattern, seam)) for key, item in value.items()]
        num_seams = sum(key[1] + item[1] for key, item in pairs)
        return ({key[0]: item[0] for key, item in pairs} if num_seams else value), num_seams
    if isinstance(value, list | tuple):
        items = [_seamed(item, pattern, seam) for item in value]
        num_seams = sum(count for _, count in items)
        return ([item for item, _ in items] if num_seams else value), num_seams
    return value, 0
