"""Follows compiled forms with the grammar library itself, over a vocabulary of single bytes and a few more tokens."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.forms import grammar_of

TAGS = ("<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
EOS_ID = 256
_TAG_PATTERN = re.compile("(" + "|".join(re.escape(tag) for tag in TAGS) + ")")
_LONGER = ('{"', '": ', '", "', '"}', "}}", "</", "<p", "\n\n", "  ", "null", "</parameter>", "é", "😀")
# Tried first when a walk has become long, and now and then before: what ends things.
_ENDINGS = (
    '"',
    "}",
    "]",
    "0",
    "\n</parameter>\n",
    "</function>",
    "</tool_call>",
    "true",
    "null",
    '"a"',
    "{}",
    ": ",
)


class _Vocabulary:
    eos_token_id = EOS_ID
    bos_token_id = None
    special_token_ids = tuple(range(EOS_ID, EOS_ID + len(TAGS)))

    def __init__(self, tags: Sequence[str]) -> None:
        spelled = [tag if tag in tags or tag == TAGS[0] else f"<|unused_{i}|>" for i, tag in enumerate(TAGS)]
        single = [bytes([i]) for i in range(256)]
        self.tokens = [*single, *(tag.encode() for tag in spelled), *(text.encode() for text in _LONGER)]

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


class FormWalker:
    """One form. Texts spell tags as themselves.

    Args:
        form: what the output must be; a text is a grammar of the library's.
        has_tags: whether the vocabulary has tokens for the tags of calls and thoughts.
        endings: texts that random walks try first when they have become long.
    """

    def __init__(
        self, form: StructuredOutputsParams | str, *, has_tags: bool = True, endings: Sequence[str] = ()
    ) -> None:
        self._endings = (*endings, *_ENDINGS)
        self._tags = TAGS if has_tags else TAGS[:1]
        self._vocabulary = _Vocabulary(self._tags)
        tokenizer = LLTokenizer(TokenizerWrapper(self._vocabulary))
        grammar = form if isinstance(form, str) else grammar_of(form, self.token_id)
        self._matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())

    def token_id(self, text: str) -> int | None:
        """The id of a tag."""
        return EOS_ID + TAGS.index(text) if text in self._tags else None

    def accepts(self, text: str) -> bool:
        """Whether the whole text, and nothing more, is a possible output."""
        matcher = self._matcher.deep_copy()
        token_ids = self._encoded(text)
        return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()

    def begins(self, text: str) -> bool:
        """Whether an output may begin with the text."""
        token_ids = self._encoded(text)
        return self._matcher.deep_copy().validate_tokens(token_ids) == len(token_ids)

    def random_walk(self, seed: int, *, max_tokens: int = 150) -> str:
        """A random output. After so many tokens it takes the shortest way to an end that it sees.

        Raises:
            RuntimeError: it found none.
        """
        rng = random.Random(seed)
        matcher = self._matcher.deep_copy()
        output: list[int] = []
        while not (matcher.is_stopped() and matcher.is_accepting()):
            if len(output) > 10 * max_tokens:
                raise RuntimeError(f"no end after {self._decoded(output)!r}")
            is_late = len(output) > max_tokens
            if matcher.is_accepting() and (is_late or rng.random() < 0.1):
                break
            taken = self._ending(matcher, rng, is_late) if is_late or rng.random() < 0.3 else []
            taken = taken or [self._any_token(matcher, rng)]
            if taken == [EOS_ID]:
                break
            if not matcher.consume_tokens(taken):
                raise RuntimeError(f"{self._decoded(taken)!r} was allowed and refused: {matcher.get_error()}")
            output += taken
        return self._decoded(output)

    def _ending(self, matcher: LLMatcher, rng: random.Random, is_late: bool) -> list[int]:
        endings = list(self._endings) if is_late else rng.sample(self._endings, len(self._endings))
        if is_late and rng.random() < 0.2:
            rng.shuffle(endings)
        for ending in endings:
            token_ids = self._encoded(ending)
            if matcher.validate_tokens(token_ids) == len(token_ids):
                return token_ids
        return []

    def _any_token(self, matcher: LLMatcher, rng: random.Random) -> int:
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(len(self._vocabulary.tokens)) if mask[i // 8] >> (i % 8) & 1]
        if not allowed:
            raise RuntimeError(f"nothing is allowed: {matcher.get_error()}")
        readable = [i for i in allowed if 32 <= i < 127 or i >= EOS_ID]
        return rng.choice(readable if readable and rng.random() < 0.8 else allowed)

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _TAG_PATTERN.split(text):
            token_id = self.token_id(part)
            ids += list(part.encode()) if token_id is None else [token_id]
        return ids

    def _decoded(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._vocabulary.tokens[i] for i in token_ids).decode()


def json_texts(value: object) -> list[str]:
    """One JSON value as Python's encoder writes it: with spaces, compact characters, and indented."""
    return [json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent=2)]
