"""One question with its right answer, and the rule that keeps held-out questions out of training."""

import zlib
from dataclasses import dataclass, field
from typing import Any

HELD_OUT_SHARE = 16
"""One operand set in this many is never trained on."""


@dataclass(frozen=True)
class Item:
    """A question, and the text that the model shall give.

    `key` names the operands only (never the wording): all wordings of one operand set are on the same side of the
    split. `reasoning` is what stands inside the think block when the item is asked with thinking on; with thinking
    off `answer` alone is expected. `final` is what a checker looks for at the end of the answer.
    """

    task: str
    key: str
    messages: list[dict[str, Any]]
    answer: str
    reasoning: str = ""
    is_thinking: bool = True
    final: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    language: str = "en"
    is_raw: bool = False
    """True for plain prose without the chat format; `answer` is then the whole text."""
    prompt_at: int = 0
    """Index in `messages` of the question itself; what stands before it is a system text or earlier turns."""


def with_work(work: str, result: str, is_chinese: bool) -> str:
    """An answer that shows its work first: the form of most answers when thinking is off."""
    return f"{work},所以答案是{result}" if is_chinese else f"{work}, so the answer is {result}"


def is_held_out(key: str) -> bool:
    """Whether the operand set `key` belongs to the held-out side."""
    return zlib.crc32(key.encode()) % HELD_OUT_SHARE == 0
