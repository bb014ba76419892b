"""What Qanat asks of a grammar library, and the choice between those that there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Protocol, cast

from qanat.core.constraint import Matcher
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.vocabulary import Vocabulary

MAX_FORCED_TOKENS = 16
"""Most that a matcher's `forced` tells at a time: as many as a draft may have."""


class CompiledForm(Protocol):
    """A grammar that is ready to be followed any number of times, from any thread, one call at a time."""

    def matcher(self) -> Matcher:
        """A matcher at the start of the form; cheap."""
        ...


class Backend(Protocol):
    """A grammar library with a tokenizer's vocabulary. Making one may take seconds and hold all of Python up."""

    def grammar(self, params: StructuredOutputsParams) -> str:
        """The form in the library's words.

        Raises:
            StructuredOutputError: the form is malformed or uses what the library does not offer.
        """
        ...

    def compile(self, grammar: str) -> CompiledForm:
        """Makes the text of `grammar` ready; other threads run meanwhile.

        Raises:
            StructuredOutputError: it cannot be followed: wrong, or too complex.
        """
        ...


_HOMES: Mapping[str, tuple[str, str]] = {
    "guidance": ("qanat.structured.guidance", "GuidanceBackend"),
    "xgrammar": ("qanat.structured.xgrammar_backend", "XgrammarBackend"),
}


def make_backend(name: str, vocabulary: Vocabulary) -> Backend:
    """The backend of this name, see `qanat.config.structured.BACKENDS`; its library is imported now."""
    module, attribute = _HOMES[name]
    make = cast(Callable[[Vocabulary], Backend], getattr(import_module(module), attribute))
    return make(vocabulary)
