"""Follows compiled forms token by token, as the sampler does, over a vocabulary of bytes and a few longer tokens."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from qanat.core.constraint import Matcher
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.backend import Backend, make_backend
from qanat.structured.vocabulary import Vocabulary

TAGS = ("<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
EOS_ID = 256
_TAG_PATTERN = re.compile("(" + "|".join(re.escape(tag) for tag in TAGS) + ")")
_LONGER = ('{"', '": ', '", "', '"}', "}}", "</", "<p", "\n\n", "  ", "null", "</parameter>", "é", "😀")
# Tried first when a walk has become long, and now and then before: what ends things.
_ENDINGS = (
    "\n</parameter>\n",
    ">\n",
    '"',
    "x",
    "}",
    "]",
    ": ",
    ", ",
    "</function>\n",
    "</tool_call>",
    "0",
    "true",
    "null",
)


def small_vocabulary(*, has_tags: bool = True) -> Vocabulary:
    """Every byte, the tags or tokens without a meaning in their place, and a few longer texts."""
    spelled = [tag if has_tags or i == 0 else f"<|unused_{i}|>" for i, tag in enumerate(TAGS)]
    texts = [*spelled, *_LONGER]
    return Vocabulary(
        tokens=[*(bytes([i]) for i in range(EOS_ID)), *(text.encode() for text in texts)],
        added_ids=list(range(EOS_ID, EOS_ID + len(TAGS))),
        eos_ids=[EOS_ID],
    )


@cache
def _backend(name: str, has_tags: bool) -> Backend:
    return make_backend(name, small_vocabulary(has_tags=has_tags))


class FormWalker:
    """One form. Texts spell tags as themselves.

    Args:
        form: what the output must be.
        has_tags: whether the vocabulary has tokens for the tags of calls and thoughts.
        backend: name of the grammar library.
    """

    def __init__(
        self, form: StructuredOutputsParams, *, has_tags: bool = True, backend: str = "guidance"
    ) -> None:
        self._vocabulary = small_vocabulary(has_tags=has_tags)
        self._ids = self._vocabulary.added_ids_by_text()
        maker = _backend(backend, has_tags)
        self._form = maker.compile(maker.grammar(form))

    def accepts(self, text: str) -> bool:
        """Whether the whole text, and nothing more, is a possible output."""
        matcher = self._form.matcher()
        return self._take(matcher, self._encoded(text)) and EOS_ID in self._allowed(matcher)

    def begins(self, text: str) -> bool:
        """Whether an output may begin with the text."""
        return self._take(self._form.matcher(), self._encoded(text))

    def allowed(self, text: str) -> set[str]:
        """Tokens that may follow the text; those that end an output by their spelling."""
        matcher = self._form.matcher()
        assert self._take(matcher, self._encoded(text))
        return {self._vocabulary.tokens[i].decode("latin-1") for i in self._allowed(matcher)}

    def random_walk(self, seed: int, *, max_tokens: int = 60) -> str:
        """A random output. After so many tokens it takes the shortest way to an end that it sees.

        Raises:
            RuntimeError: it found none.
        """
        rng = random.Random(seed)
        matcher = self._form.matcher()
        output: list[int] = []
        while (allowed := self._allowed(matcher)) != [EOS_ID]:
            if len(output) > 10 * max_tokens or not allowed:
                raise RuntimeError(f"no end after {self._decoded(output)!r}")
            is_late = len(output) > max_tokens
            if EOS_ID in allowed and (is_late or rng.random() < 0.1):
                break
            taken = self._ending(matcher, rng, is_late) if is_late or rng.random() < 0.3 else []
            if not taken:
                taken = [self._any_token(allowed, rng)]
                matcher.consume(taken[0])
            output += taken
        return self._decoded(output)

    def _allowed(self, matcher: Matcher) -> list[int]:
        words = np.zeros(self._vocabulary.num_mask_words, dtype=np.int32)
        if not matcher.fill_mask(words):
            return list(range(self._vocabulary.size))
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: self._vocabulary.size]
        return [int(i) for i in np.flatnonzero(bits)]

    def _take(self, matcher: Matcher, token_ids: Sequence[int]) -> bool:
        """Consumes the tokens if all are allowed, and none otherwise."""
        for i, token_id in enumerate(token_ids):
            if token_id not in self._allowed(matcher):
                matcher.rollback(i)
                return False
            matcher.consume(token_id)
        return True

    def _ending(self, matcher: Matcher, rng: random.Random, is_late: bool) -> list[int]:
        endings = list(_ENDINGS)
        if not is_late or rng.random() < 0.2:
            rng.shuffle(endings)
        for ending in endings:
            token_ids = self._encoded(ending)
            if self._take(matcher, token_ids):
                return token_ids
        return []

    def _any_token(self, allowed: Sequence[int], rng: random.Random) -> int:
        choices = [i for i in allowed if i != EOS_ID]
        readable = [i for i in choices if 32 <= i < 127 or i > EOS_ID]
        return rng.choice(readable if readable and rng.random() < 0.8 else choices)

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _TAG_PATTERN.split(text):
            token_id = self._ids.get(part)
            ids += list(part.encode()) if token_id is None else [token_id]
        return ids

    def _decoded(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._vocabulary.tokens[i] for i in token_ids).decode()


def json_texts(value: object) -> list[str]:
    """One JSON value as Python's encoder writes it: without spaces, with them, and indented.

    Characters stand as they are: escaped keys are no other spelling that a form has to allow.
    """
    return [
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, ensure_ascii=False, indent=2),
    ]
