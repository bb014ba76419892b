"""Text of others on a terminal: it cannot move the cursor, change colours or write into the title."""

from __future__ import annotations

KEPT = "\n\t"


def printable(text: str, kept: str = KEPT) -> str:
    """The text with every character that is no letter of it escaped, but those of `kept`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )
