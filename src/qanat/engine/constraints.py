"""From the form that a request asks for to what travels with it to the sampler."""

from __future__ import annotations

from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Constraint, Thinking
from qanat.core.errors import InvalidRequestError, StructuredOutputError
from qanat.core.sampling_params import SamplingParams
from qanat.engine.tokenizer import Tokenizer
from qanat.structured.vocabulary import Vocabulary

THINK_START, THINK_END = "<think>", "</think>"
CALL_START = "<tool_call>"
BLANKS = frozenset((b"\n", b"\n\n"))
"""What may stand between the end of the thoughts and the form, as one token."""


def vocabulary_of(tokenizer: Tokenizer, config: ResolvedConfig) -> Vocabulary:
    """The tokens that the sampler can choose."""
    size = config.num_valid_token_ids or config.model.vocab_size
    return Vocabulary(
        [tokenizer.token_bytes(token_id) for token_id in range(size)],
        [token_id for token_id in sorted(tokenizer.added_token_ids) if token_id < size],
        [token_id for token_id in tokenizer.eos_token_ids if token_id < size],
    )


class VocabularyPacker:
    """A tokenizer's vocabulary as bytes, and what else takes a look at every token: made at once and kept.

    Args:
        tokenizer: may still grow.
        config: the resolved configuration.
    """

    def __init__(self, tokenizer: Tokenizer, config: ResolvedConfig) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._packed = b""
        self._blank_ids: list[int] = []
        self._size = -1

    def packed(self) -> bytes:
        """See `Vocabulary.packed`."""
        self._look()
        return self._packed

    def blank_ids(self) -> list[int]:
        """Tokens that are blank lines and nothing else."""
        self._look()
        return self._blank_ids

    def _look(self) -> None:
        if self._size != self._tokenizer.vocab_size:
            self._size = self._tokenizer.vocab_size
            vocabulary = vocabulary_of(self._tokenizer, self._config)
            self._packed = vocabulary.packed()
            self._blank_ids = [
                token_id for token_id, spelled in enumerate(vocabulary.tokens) if spelled in BLANKS
            ]


def check_form(sampling: SamplingParams, eos_token_ids: tuple[int, ...], num_valid_token_ids: int) -> None:
    """Refuses settings that a form cannot go with.

    Raises:
        InvalidRequestError: a form that could never end.
    """
    if sampling.structured_outputs is None:
        return
    if sampling.ignore_eos:
        raise InvalidRequestError(
            "ignore_eos cannot go with structured_outputs: an output of a given form ends with the form.",
            param="ignore_eos",
        )
    if not any(token_id < num_valid_token_ids for token_id in eos_token_ids):
        raise StructuredOutputError(
            "The checkpoint names no end-of-sequence token, so an output of a given form could never end.",
            param="structured_outputs",
        )


class ConstraintMaker:
    """Makes constraints for one tokenizer.

    Args:
        tokenizer: knows the tags of thoughts.
        config: the resolved configuration.
        vocabulary: of that tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, config: ResolvedConfig, vocabulary: VocabularyPacker) -> None:
        self._settings = config.structured
        self._start_id = tokenizer.token_id(THINK_START)
        self._end_id = tokenizer.token_id(THINK_END)
        self._call_start_id = tokenizer.token_id(CALL_START)
        self._vocabulary = vocabulary

    def constraint(self, grammar: str, thinking: Thinking) -> Constraint:
        """What travels with a request; a model without tags for thoughts has none.

        Args:
            grammar: of the compiled form.
            thinking: whether the output begins with thoughts.
        """
        backend = self._settings.backend
        if thinking is Thinking.NONE or self._end_id is None or self._settings.is_in_reasoning:
            return Constraint(backend, grammar)
        blank_ids = self._vocabulary.blank_ids()
        return Constraint(
            backend, grammar, thinking, self._start_id, self._end_id, blank_ids, self._call_start_id
        )
