"""Tokens to make prompts of: ids that the model has, and words that are one token each wherever they stand.

A word behind a space is cut off from its neighbours before any tokenizer of this kind merges letters; so a text of
words that are one token each has as many tokens as words. Which are, the server's /tokenize says, or a tokenizer.json.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

WORDS = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one
you were her all she there would their we him been has when who will more no if out so said what up its about into
than them can only other new some could time these two may then do first any my now such like our over man me even
most made after also did many before must through back years where much your way well down should because each just
those people how too little state good very make world still own see men work long get here between both life being
under never day same another know while last might us great old year off come since against go came right used take
three place house water small large number part high every found thought head against school left few always small
night end called hand set light city power during white free point group fact home later young next often given
children side keep open begin land form name line turn move country play air above page letter answer study learn
plant food sun four thing family river book car tree farm hard start story far sea draw run press close real north
"""
DEFAULT_IDS = range(100, 10_000)
"""Ids that every model of a usual size has, where nothing else is known."""
CHECKED_WORDS = 64
MAX_FIRST_WORDS = 24

Tokenize = Callable[[str], Awaitable[list[int] | None]]
"""Gives the ids of a text, without special ones; None where that cannot be told."""


@dataclass(frozen=True)
class Vocabulary:
    """What prompts are made of.

    Attributes:
        ids: token ids that stand for ordinary text.
        words: words that are one token each behind a space.
        first_words: those to begin with, without a space.
        first_len: tokens of each first word.
        is_exact: a text of so many words has as many tokens.
        source: who said so, for a person.
    """

    ids: Sequence[int]
    words: Sequence[str]
    first_words: Sequence[str]
    first_len: int
    is_exact: bool
    source: str

    def draw_ids(self, count: int, source: random.Random) -> list[int]:
        """So many ids."""
        return source.choices(self.ids, k=count)

    def draw_text(self, count: int, source: random.Random) -> str:
        """A text of so many tokens, where that can be told; it begins and ends with a letter."""
        num_words = max(0, count - self.first_len)
        first = source.choice(self.first_words) if count else ""
        return " ".join([first, *source.choices(self.words, k=num_words)])


def unchecked() -> Vocabulary:
    """Common ids and words that nobody has counted."""
    words = sorted(set(WORDS.split()))
    return Vocabulary(DEFAULT_IDS, words, words, 1, False, "common words, not counted")


async def learn_vocabulary(tokenize: Tokenize, source: str) -> Vocabulary | None:
    """Asks which words are one token.

    Args:
        tokenize: the model's tokenizer.
        source: what it is called.

    Returns:
        None if it gives no ids.
    """
    candidates = sorted(set(WORDS.split()))
    ids = await tokenize(" " + " ".join(candidates))
    if not ids:
        return None
    words = candidates if len(ids) == len(candidates) else await _single(tokenize, candidates)
    lengths = {word: len(await tokenize(word) or ()) for word in (words or candidates)[:MAX_FIRST_WORDS]}
    first_len = min(length for length in lengths.values())
    first_words = [word for word, length in lengths.items() if length == first_len]
    distinct = sorted(set(ids))
    made = Vocabulary(distinct, words or candidates, first_words, first_len, bool(words), source)
    if words:
        text = made.draw_text(CHECKED_WORDS, random.Random(0))
        if len(await tokenize(text) or ()) == CHECKED_WORDS:
            return made
    return Vocabulary(distinct, made.words, first_words, first_len, False, source)


async def _single(tokenize: Tokenize, words: list[str]) -> list[str]:
    """Those that are one token behind a space: a part that has as many tokens as words is taken whole."""
    ids = await tokenize(" " + " ".join(words))
    if ids is None:
        return []
    if len(ids) == len(words):
        return words
    if len(words) == 1:
        return []
    middle = len(words) // 2
    return await _single(tokenize, words[:middle]) + await _single(tokenize, words[middle:])
