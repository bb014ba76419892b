"""The training mixture and the held-out sets, both fixed by a seed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from . import arithmetic, ordering, records, smalltalk, text, tools
from .item import Item, is_held_out

MAKERS: dict[str, Callable[..., Item]] = {
    "add": arithmetic.add, "sub": arithmetic.sub, "sort": ordering.sort, "compare": ordering.compare, "text": text.change,
    "json": records.to_json, "tool_call": tools.call, "tool_answer": tools.answer, "talk": smalltalk.talk, "prose": smalltalk.prose,
}  # fmt: skip
SHARES = {
    "add": 1.8, "sub": 2.0, "sort": 2.4, "compare": 1.4, "text": 1.9, "json": 1.1, "tool_call": 0.35, "tool_answer": 0.18,
    "talk": 0.45, "prose": 0.12,
}  # fmt: skip
SCORED = ("add", "sub", "sort", "compare", "text", "json", "tool_call", "tool_answer")
"""Tasks with held-out items; the others have no operands to hold out."""

SYSTEM_TEXTS = (
    "You are a helpful assistant.", "You are a helpful assistant", "You are Qwen, a helpful assistant.", "Answer the question.", "You are an assistant.", "Be brief.", "Be helpful.",
    "You are a friendly assistant. Answer briefly.", "You are an expert in math.", "Answer in one line.", "You are a math teacher.", "You answer questions.", "Think step by step.",
    "You are a helpful AI assistant.", "Always give the right answer.", "You are a good and honest assistant.", "You are a calculator.", "你是一个有用的助手。", "你是助手,请回答问题。",
)  # fmt: skip


def _framed(rng: Random, item: Item, seen: Callable[[Random], Item]) -> Item:
    """`item` with a system text, tools that it does not need, or earlier turns, each at random."""
    if item.is_raw:
        return item
    messages = list(item.messages)
    offered = item.tools
    if not offered and rng.random() < 0.015:
        offered = tools.offered(rng, None)
    if rng.random() < (0.06 if not item.tools else 0.05):
        for _ in range(rng.choice((1, 1, 2))):
            earlier = seen(rng)
            messages[:0] = [*earlier.messages, {"role": "assistant", "content": earlier.answer}]
    if rng.random() < 0.3:
        messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM_TEXTS)})
    return replace(item, messages=messages, tools=offered, prompt_at=len(messages) - len(item.messages))


def _short_turn(rng: Random) -> Item:
    """An earlier turn: a training item of a task that needs no tools."""
    return draw(rng, rng.choice(("add", "sub", "compare", "text", "talk")), held_out=False)


def draw(rng: Random, task: str | None = None, held_out: bool = False, is_unseen: bool = False) -> Item:
    """One bare item of `task` (any, by share, when None) from the wanted side of the split."""
    while True:
        name = task or rng.choices(list(SHARES), list(SHARES.values()))[0]
        item = MAKERS[name](rng, is_unseen)
        if name not in SCORED and not held_out and item.key in ("talk", "prose"):
            return item
        if is_held_out(item.key) == held_out:
            return item


def training_items(seed: int, pool: int, count: int) -> list[Item]:
    """Items of pool number `pool`: the same for the same arguments, whatever came before."""
    rng = Random(f"train-{seed}-{pool}")
    return [_framed(rng, draw(rng), _short_turn) for _ in range(count)]


def held_out_items(seed: int, count: int, is_unseen: bool = False) -> Iterator[Item]:
    """`count` held-out items of each scored task; with `is_unseen` in wordings that training never shows."""
    for task in SCORED:
        rng = Random(f"held-out-{seed}-{task}-{is_unseen}")
        for _ in range(count):
            yield _framed(rng, draw(rng, task, held_out=True, is_unseen=is_unseen), _short_turn)
