"""The llguidance library as a backend: grammars in its own words, masks computed token by token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.backend import MAX_FORCED_TOKENS
from qanat.structured.budget import TOO_COMPLEX, BudgetedMatcher, WorkBudget
from qanat.structured.forms import grammar_of
from qanat.structured.grammars import BY_HAND, OPTIONS_MARK
from qanat.structured.library import said_by_library
from qanat.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STEP_FUEL = 100_000
"""Work of the lexer for one mask, about 14,000 a millisecond: no mask may hold a step up for long."""
STEP_ITEMS = 200_000
"""Work of the parser for one mask, about 20,000 a millisecond with what is made of schemas."""
ROW_ITEMS = 2_000
"""Ways to go on after a text; an object has about four for each property that may be left out."""
STEP_ITEMS_BY_HAND = 5_000
"""The same for a client's own rules, of which an item takes a thousand times as long where they are ambiguous."""
ROW_ITEMS_BY_HAND = 500
MAX_LEXER_STATES = 50_000
"""States of one form's lexer, 1 to 2 KiB each."""

_NOT_ALLOWED = "doesn't satisfy the grammar"
"""In the library's message about a token that may not come; others are about limits."""

DEAD_END = "No text has the form: nothing may come here. Look for bounds that exclude each other."


class GuidanceBackend:
    """llguidance over one vocabulary.

    Making the library's tokenizer takes 0.8 s and 100 MiB for 248,077 tokens, and holds the interpreter's lock.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._added_ids = vocabulary.added_ids_by_text()
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_TokenSource(vocabulary)),
            n_vocab=vocabulary.size,
            eos_token=list(vocabulary.eos_ids),
        )
        self._eos_ids = frozenset(vocabulary.eos_ids)
        self._limits = _limits(STEP_ITEMS, ROW_ITEMS)
        self._limits_by_hand = _limits(STEP_ITEMS_BY_HAND, ROW_ITEMS_BY_HAND)

    def grammar(self, params: StructuredOutputsParams) -> str:
        """See `Backend`."""
        return without_forcing(grammar_of(params, self._added_ids.get))

    def compile(self, grammar: str) -> GuidanceForm:
        """See `Backend`."""
        limits = self._limits_by_hand if BY_HAND in grammar else self._limits
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise StructuredOutputError(
                f"The form cannot be followed: {said_by_library(matcher.get_error())}"
            )
        return GuidanceForm(matcher, self._eos_ids)


class GuidanceForm:
    """A compiled grammar; matchers are copies of one that has not begun."""

    def __init__(self, matcher: LLMatcher, eos_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._budget = WorkBudget()

    def matcher(self) -> BudgetedMatcher:
        """See `CompiledForm`."""
        return BudgetedMatcher(GuidanceMatcher(self._matcher.deep_copy(), self._eos_ids), self._budget)


class GuidanceMatcher:
    """One output along a grammar; see `qanat.core.constraint.Matcher`.

    Args:
        matcher: the library's, at the start.
        eos_ids: tokens that end an output.
    """

    def __init__(self, matcher: LLMatcher, eos_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._num_ends = 0

    def fill_mask(self, words: npt.NDArray[np.int32]) -> bool:
        """See `Matcher`; a form that is over allows the tokens that end an output."""
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if self._matcher.is_error():
            is_dead_end = "NoExtension" in self._matcher.get_error()
            raise StructuredOutputError(DEAD_END if is_dead_end else TOO_COMPLEX)
        return True

    def consume(self, token_id: int) -> None:
        """See `Matcher`."""
        if token_id in self._eos_ids and self._matcher.is_accepting():
            self._num_ends += 1  # the library does not count ends when it goes back
        elif not self._matcher.consume_token(token_id):
            if _NOT_ALLOWED not in self._matcher.get_error():
                raise StructuredOutputError(TOO_COMPLEX)
            raise StructuredOutputError(f"The form does not allow token {token_id} here.")

    def rollback(self, num_tokens: int) -> None:
        """See `Matcher`."""
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        num_tokens -= num_ends
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise StructuredOutputError("The form cannot go back so far.")

    def forced(self) -> list[int]:
        """See `Matcher`; so many at a time as a draft may have."""
        token_ids: list[int] = []
        while len(token_ids) < MAX_FORCED_TOKENS and (token_id := self._only_token()) is not None:
            self.consume(token_id)
            token_ids.append(token_id)
        self.rollback(len(token_ids))
        return token_ids

    def _only_token(self) -> int | None:
        mask = int.from_bytes(self._matcher.compute_bitmask(), "little")
        return mask.bit_length() - 1 if mask and not mask & (mask - 1) else None


class _TokenSource:
    """The vocabulary as the library's wrapper of tokenizers reads it."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens: Sequence[bytes] = vocabulary.tokens
        self.special_token_ids: Sequence[int] = vocabulary.added_ids
        self.eos_token_id = vocabulary.eos_ids[0]

    def __call__(self, text: bytes) -> list[int]:
        """Asked for only where text is forced, see `without_forcing`."""
        return []


def _limits(step_items: int, row_items: int) -> LLParserLimits:
    return LLParserLimits(
        step_lexer_fuel=STEP_FUEL,
        step_max_items=step_items,
        max_items_in_row=row_items,
        max_lexer_states=MAX_LEXER_STATES,
        verbose_errors=False,
    )


def without_forcing(grammar: str) -> str:
    """The grammar in Lark, with the library's forcing of tokens switched off.

    The library asks a tokenizer to spell text that must come, and allows that spelling only. Without, every spelling of
    the text is allowed, and the model takes the one that it knows.

    Args:
        grammar: Lark, or the library's JSON with one grammar or several in it, of which the first names the others.
    """
    if grammar.lstrip().startswith("{"):
        first, *others = json.loads(grammar)["grammars"]
        if others:
            first["lark_grammar"] = without_forcing(first["lark_grammar"])
            return json.dumps({"grammars": [first, *others]})
        if first.get("json_schema") is None:
            return without_forcing(first["lark_grammar"])
        return without_forcing(f"start: %json {json.dumps(first['json_schema'])}")
    if not grammar.startswith(OPTIONS_MARK):
        return f'{OPTIONS_MARK} {{"no_forcing": true}}\n{grammar}'
    head, _, rules = grammar.partition("\n")
    options = {**json.loads(head.removeprefix(OPTIONS_MARK)), "no_forcing": True}
    return f"{OPTIONS_MARK} {json.dumps(options)}\n{rules}"
