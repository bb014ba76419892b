"""Text of others on a terminal: it cannot move the cursor, change colours or write into the title."""

from __future__ import annotations

KEPT = "\n\t"
MAX_WORD = 100


def printable(text: str, kept: str = KEPT) -> str:
    """The text with every character that is no letter of it escaped, but those of `kept`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


def quoted(text: str, max_letters: int = MAX_WORD) -> str:
    """What another process says of itself, cut, and so that nothing in it begins a line of its own."""
    return printable(text if len(text) <= max_letters else f"{text[:max_letters]}...", kept="")
