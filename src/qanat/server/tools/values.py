"""Values of XML parameters that have not ended: when they are text for certain, and what is sent of them at a cut."""

from __future__ import annotations

import os
import re

from qanat.structured.mending import mended

STRING = "string"

_SPELLINGS = {
    "boolean": {"true": "true", "false": "false"},
    "null": {"null": "null", "none": "null"},
}
_NUMBER_BEGINNING = re.compile(r"-?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]*)?)?")
_BRACKETS = {"object": "{", "array": "["}


def is_surely_text(text: str, types: frozenset[str]) -> bool:
    """Whether a value that begins like this is a string whatever follows.

    Args:
        text: its beginning, not empty.
        types: that the schema allows.
    """
    if STRING not in types:
        return False
    bare = text.strip()
    return not (bare == "" and len(types) > 1) and not any(_may_be(bare, kind) for kind in types - {STRING})


def json_beginning(text: str, types: frozenset[str]) -> str:
    """JSON text of a value that was cut off, as far as it goes: what the whole would have begun with.

    Args:
        text: all that came of it.
        types: that the schema allows.
    """
    bare = text.strip()
    if any(kind in types and bare.startswith(bracket) for kind, bracket in _BRACKETS.items()):
        return mended(bare)
    for kind, spellings in _SPELLINGS.items():
        for spelling, value in spellings.items():
            if kind in types and bare and spelling.startswith(bare.lower()):
                return os.path.commonprefix([bare.lower(), value])
    return bare


def _may_be(bare: str, kind: str) -> bool:
    """Whether text of this type may begin like this."""
    if kind in _SPELLINGS:
        return any(spelling.startswith(bare.lower()) for spelling in _SPELLINGS[kind])
    if kind in _BRACKETS:
        return bare.startswith(_BRACKETS[kind])
    return _NUMBER_BEGINNING.fullmatch(bare) is not None
