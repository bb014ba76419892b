"""Matchers for requests: each form is compiled once and kept while somebody uses it, and some time longer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

import numpy as np

from qanat.core.constraint import Constraint, Matcher, Thinking
from qanat.core.errors import IntegrityError
from qanat.structured.backend import Backend, CompiledForm, make_backend
from qanat.structured.matcher import ThinkingGate, Words, clear_bits
from qanat.structured.vocabulary import Vocabulary

MAX_KEPT_FORMS = 64
MAX_KEPT_CHARS = 3 * 2**19
"""Length of the grammars of all forms that are kept without being used; compiled, they take about ten times that."""

FormKey = tuple[str, str]
"""Backend and grammar."""


class Form:
    """A compiled form; whoever holds it keeps it from being compiled again."""

    def __init__(self, compiled: CompiledForm) -> None:
        self.compiled = compiled


class FormFactory:
    """The `MatcherFactory` of one engine. Compiling may run in any thread; matchers belong to one thread.

    Args:
        read_vocabulary: see `use_vocabulary`, which may be called later instead.
    """

    def __init__(self, read_vocabulary: Callable[[], Vocabulary] | None = None) -> None:
        self._read_vocabulary = read_vocabulary
        self._lock = threading.Lock()
        self._backend_lock = threading.Lock()
        self._backends: dict[str, Backend] = {}
        self._live: WeakValueDictionary[FormKey, Form] = WeakValueDictionary()
        self._kept: OrderedDict[FormKey, Form] = OrderedDict()
        self._inside: Words = np.zeros(0, dtype=np.int32)
        self._scratch: Words = np.zeros(0, dtype=np.int32)

    @property
    def has_vocabulary(self) -> bool:
        """True once forms can be compiled."""
        return self._read_vocabulary is not None

    def use_vocabulary(self, read_vocabulary: Callable[[], Vocabulary]) -> None:
        """Says which tokens there are.

        Args:
            read_vocabulary: called when a backend is needed first.
        """
        self._read_vocabulary = read_vocabulary

    def warm_up(self, backend: str) -> None:
        """Makes a backend ready, which may hold all of Python up for a second; harmless when repeated.

        Nothing where no form could end, so that requests for one are refused: libraries take no such vocabulary.
        """
        if self._vocabulary().eos_ids:
            self._backend(backend)

    def known(self, constraint: Constraint) -> Form | None:
        """The form, if it is compiled."""
        with self._lock:
            return self._live.get(_key(constraint))

    def form(self, constraint: Constraint) -> Form:
        """The form, compiled if need be; the longest wait that there is here.

        Raises:
            StructuredOutputError: it cannot be followed.
        """
        form = self.known(constraint)
        if form is None:
            form = Form(self._backend(constraint.backend).compile(constraint.grammar))
        self._keep(_key(constraint), form)
        return form

    def matcher(self, constraint: Constraint) -> Matcher:
        """See `MatcherFactory`."""
        matcher = self.form(constraint).compiled.matcher()
        if constraint.thinking is Thinking.NONE:
            return matcher
        return ThinkingGate(matcher, constraint, self._inside, self._scratch)

    def _backend(self, name: str) -> Backend:
        with self._backend_lock:
            if name not in self._backends:
                vocabulary = self._vocabulary()
                self._inside = np.full(vocabulary.num_mask_words, -1, dtype=np.int32)
                past_the_end = range(vocabulary.size, 32 * vocabulary.num_mask_words)
                clear_bits(self._inside, [*vocabulary.eos_ids, *past_the_end])
                self._scratch = np.zeros(vocabulary.num_mask_words, dtype=np.int32)
                self._backends[name] = make_backend(name, vocabulary)
            return self._backends[name]

    def _vocabulary(self) -> Vocabulary:
        if self._read_vocabulary is None:
            raise IntegrityError("a form is to be compiled before the vocabulary is known")
        return self._read_vocabulary()

    def _keep(self, key: FormKey, form: Form) -> None:
        with self._lock:
            self._live[key] = form
            self._kept[key] = form
            self._kept.move_to_end(key)
            num_chars = sum(len(grammar) for _, grammar in self._kept)
            while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT_FORMS or num_chars > MAX_KEPT_CHARS):
                (_, grammar), _ = self._kept.popitem(last=False)
                num_chars -= len(grammar)


def _key(constraint: Constraint) -> FormKey:
    return (constraint.backend, constraint.grammar)
