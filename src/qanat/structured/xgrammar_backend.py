"""The xgrammar library as a backend, where it is installed; forms are structural tags."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import xgrammar

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.backend import MAX_FORCED_TOKENS
from qanat.structured.budget import BudgetedMatcher, WorkBudget
from qanat.structured.library import MAX_MESSAGE_CHARS
from qanat.structured.vocabulary import Vocabulary
from qanat.structured.xgrammar_forms import XgrammarForms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SOURCE_LINE = re.compile(r"^\[[^\]]*\] \S+: ")
"""Time and place in the library's own code, which its messages begin with."""
_NO_TEXT = b"\xff"
"""Begins the bytes of tokens that are no text: no text in UTF-8 holds it, so only a token's number allows them."""


class XgrammarBackend:
    """xgrammar over one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        added = set(vocabulary.added_ids)
        tokens = [_NO_TEXT + text if i in added else text for i, text in enumerate(vocabulary.tokens)]
        self._ids = vocabulary.added_ids_by_text()
        information = xgrammar.TokenizerInfo(
            tokens,
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=vocabulary.eos_ids,
        )
        self._compiler = xgrammar.GrammarCompiler(information, max_threads=1, cache_enabled=False)

    def grammar(self, params: StructuredOutputsParams) -> str:
        """See `Backend`."""
        return json.dumps({"type": "structural_tag", "format": XgrammarForms(params, self._ids.get).format()})

    def compile(self, grammar: str) -> XgrammarForm:
        """See `Backend`."""
        try:
            return XgrammarForm(self._compiler.compile_structural_tag(grammar))
        except (RuntimeError, ValueError) as error:
            message = _SOURCE_LINE.sub("", " ".join(str(error).split()))[:MAX_MESSAGE_CHARS]
            raise StructuredOutputError(f"The form cannot be followed: {message}") from None


class XgrammarForm:
    """A compiled form."""

    def __init__(self, compiled: xgrammar.CompiledGrammar) -> None:
        self._compiled = compiled
        self._budget = WorkBudget()

    def matcher(self) -> BudgetedMatcher:
        """See `CompiledForm`."""
        return BudgetedMatcher(XgrammarMatcher(xgrammar.GrammarMatcher(self._compiled)), self._budget)


class XgrammarMatcher:
    """One output along a form; see `qanat.core.constraint.Matcher`."""

    def __init__(self, matcher: xgrammar.GrammarMatcher) -> None:
        self._matcher = matcher

    def fill_mask(self, words: npt.NDArray[np.int32]) -> bool:
        """See `Matcher`."""
        return bool(self._matcher.fill_next_token_bitmask(words.reshape(1, -1), 0))

    def consume(self, token_id: int) -> None:
        """See `Matcher`."""
        if not self._matcher.accept_token(token_id):
            raise StructuredOutputError(f"The form does not allow token {token_id} here.")

    def rollback(self, num_tokens: int) -> None:
        """See `Matcher`."""
        if num_tokens:
            self._matcher.rollback(num_tokens)

    def forced(self) -> list[int]:
        """See `Matcher`; so many at a time as a draft may have."""
        return list(self._matcher.find_jump_forward_tokens())[:MAX_FORCED_TOKENS]
