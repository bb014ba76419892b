"""The small tasks that clients are checked with: sums in plain words, as choices and as chats."""

from __future__ import annotations

from typing import Any

PAIRS = [(2, 3), (12, 34), (7, 15), (99, 1), (250, 350), (41, 8), (120, 45), (5, 6), (64, 17), (333, 444)]


def choices() -> list[dict[str, Any]]:
    """Questions with four answers each; the right one is not always likely for the model."""
    documents = []
    for number, (a, b) in enumerate(PAIRS):
        wrong = [a + b + 1, a + b + 10, abs(a - b)]
        right = number % 4
        options = [str(value) for value in [*wrong[:right], a + b, *wrong[right:]]]
        documents.append({"question": f"{a} + {b} =", "choices": options, "answer": right})
    return documents


def chats() -> list[dict[str, str]]:
    """Questions whose answer the model is to write."""
    return [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in PAIRS]
