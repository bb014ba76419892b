"""Text changes on one word: case, reversal, first and last letter, number of letters."""

from collections.abc import Callable
from random import Random

from . import wording, words
from .item import Item, with_work

KNOWN_WORDS = "please number word answer sum letter the what add list name sort time order message".split()
"""Words that are single tokens: asked for now and then, so that their letters are learned too."""

WORDINGS: dict[str, tuple[str, ...]] = {
    "upper": ("Uppercase: {w}", "Write {w} in capital letters.", "Convert {w} to upper case.", "Convert {w} to uppercase.", "Make {w} uppercase.", "Upper case {w}",
              "Put {w} in capitals.", "Write the word {w} in upper case.", "Change {w} to capital letters.", "Turn {w} into capitals.", "Capitalize all letters of {w}.", "Show {w} in capitals.", "Put the word {w} into capital letters.", "Give me {w} in upper case.", "{w} in capital letters?", "All capitals: {w}"),
    "lower": ("Lowercase: {w}", "Write {w} in small letters.", "Convert {w} to lower case.", "Convert {w} to lowercase.", "Make {w} lowercase.", "Lower case {w}",
              "Write the word {w} in lower case.", "Change {w} to small letters.", "Show {w} in small letters.", "Give me {w} in lower case.", "{w} in small letters?", "All small: {w}"),
    "reverse": ("Reverse the word {w}.", "Reverse: {w}", "Spell {w} backwards.", "Reverse {w}", "Write {w} backwards.", "What is {w} backwards?", "What is {w} spelled backwards?",
                "Turn {w} around.", "Reverse the string {w}.", "Reverse the letters of {w}.", "Write the word {w} in reverse.", "Flip the word {w}.", "Give me {w} backwards.", "Say {w} in reverse.", "The word {w} backwards?", "The letters of {w} in reverse order?", "Write the letters of {w} backwards.", "What is the reverse of {w}?"),
    "first": ("What is the first letter of {w}?", "First letter of {w}", "Which letter does {w} start with?", "Give the first letter of the word {w}.", "The first letter of {w}?", "What does {w} start with?"),
    "last": ("What is the last letter of {w}?", "Last letter of {w}", "Which letter does {w} end with?", "Give the last letter of the word {w}.", "The last letter of {w}?", "What does {w} end with?"),
    "length": ("How many letters are in {w}?", "How many letters does {w} have?", "Count the letters in {w}.", "How long is the word {w}?", "Length of {w}",
               "What is the length of the word {w}?", "Number of letters in {w}", "{w} has how many letters?", "The number of letters of {w}?", "How many letters are there in the word {w}?"),
}  # fmt: skip
CHINESE: dict[str, tuple[str, ...]] = {
    "upper": ("把 {w} 变成大写", "将 {w} 转为大写", "{w} 的大写是什么?"),
    "lower": ("把 {w} 变成小写", "将 {w} 转为小写"),
    "reverse": ("把单词 {w} 倒过来写", "反转: {w}", "把 {w} 反过来", "{w} 倒过来是什么?"),
    "first": ("{w} 的第一个字母是什么?",),
    "last": ("{w} 的最后一个字母是什么?",),
    "length": ("{w} 有几个字母?", "单词 {w} 有多少个字母?"),
}
UNSEEN: dict[str, tuple[str, ...]] = {
    "upper": ("Please give me {w} in all capital letters.", "Change the word {w} to upper case."),
    "lower": ("Please give me {w} in all small letters.",),
    "reverse": ("Please give me the letters of {w} backwards.", "What do you get if you reverse {w}?"),
    "first": ("Tell me the first letter of {w}.",),
    "last": ("Tell me the last letter of {w}.",),
    "length": ("Tell me how many letters {w} has.",),
}
SHARES = {"upper": 3, "lower": 2, "reverse": 5, "first": 1, "last": 1, "length": 2}
CHANGES: dict[str, Callable[[str], str]] = {
    "upper": str.upper, "lower": str.lower, "reverse": lambda w: w[::-1],
    "first": lambda w: w[0], "last": lambda w: w[-1], "length": lambda w: str(len(w)),
}  # fmt: skip


def numbered(text: str) -> str:
    """Each letter behind its place: `1h2e3l4l5o`."""
    return "".join(f"{place}{letter}" for place, letter in enumerate(text, 1))


def _work(kind: str, word: str) -> str:
    """What is thought before the answer."""
    if kind == "reverse":
        backwards = "".join(f"{place}{word[place - 1]}" for place in range(len(word), 0, -1))
        return f"{kind}: {numbered(word)}; {backwards}"
    return f"{kind}: {numbered(word)}" if kind in ("length", "last") else f"{kind}: {word}"


def change(rng: Random, is_unseen: bool = False) -> Item:
    """A word to change."""
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    word = rng.choice(KNOWN_WORDS) if rng.random() < 0.06 else words.word(rng)
    if kind == "lower":
        word = word.upper() if rng.random() < 0.6 else word.capitalize()
    elif rng.random() < 0.12:
        word = word.capitalize()
    shown = f'"{word}"' if rng.random() < 0.25 else f"'{word}'" if rng.random() < 0.15 else word
    is_chinese = rng.random() < 0.2 and not is_unseen
    text = rng.choice((UNSEEN if is_unseen else CHINESE if is_chinese else WORDINGS)[kind]).replace(
        "{w}", shown
    )
    if not is_unseen:
        text = wording.request(rng, text, is_chinese)
        if rng.random() < 0.15 and word.islower():
            text = text.lower()
    result = CHANGES[kind](word)
    work, is_thinking = _work(kind, word), rng.random() < 0.6
    return Item(
        task="text",
        key=f"text:{word.lower()}",
        messages=[{"role": "user", "content": text}],
        answer=result if is_thinking else with_work(work, result, is_chinese),
        reasoning=work,
        is_thinking=is_thinking,
        final=result,
        language="zh" if is_chinese else "en",
    )
