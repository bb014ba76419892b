"""Output that a request brings along: tokens that another engine, or this one before it failed, generated for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.core.errors import InvalidRequestError

PriorOutput = Sequence[Sequence[int] | None]
"""One entry per choice: its tokens so far, or None for a choice that has ended and is left out. Empty: a new call."""

FIELD = "output_token_ids"


def prior_outputs(given: PriorOutput, num_choices: int, vocab_size: int) -> list[list[int] | None]:
    """Output to begin with, one entry per choice.

    Raises:
        InvalidRequestError: not one entry per choice, nothing left to continue, or ids outside the vocabulary.
    """
    if not given:
        return [[] for _ in range(num_choices)]
    if len(given) != num_choices:
        raise InvalidRequestError(
            f"{FIELD} needs one entry for each of the {num_choices} choices (n), given: {len(given)}.",
            param=FIELD,
        )
    try:
        outputs = msgspec.convert(given, list[list[int] | None])
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"{FIELD}: {error}.", param=FIELD) from None
    if all(output is None for output in outputs):
        raise InvalidRequestError(
            f"{FIELD} says that every choice has ended; there is nothing to continue.", param=FIELD
        )
    for index, output in enumerate(outputs):
        for token_id in output or ():
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"{FIELD} of choice {index} contains token id {token_id}; ids run from 0 to {vocab_size - 1}.",
                    param=FIELD,
                )
    return outputs


def check_unfinished(
    output: Sequence[int], index: int, *, max_tokens: int, min_tokens: int, stop_token_ids: Sequence[int]
) -> None:
    """Refuses to continue a choice that has ended.

    Args:
        output: its tokens so far.
        index: which choice it is.
        max_tokens: most tokens, those included.
        min_tokens: no stop token counts before so many tokens.
        stop_token_ids: tokens that end it.

    Raises:
        InvalidRequestError: it has reached its length or a stop token.
    """
    if output and len(output) >= max_tokens:
        raise InvalidRequestError(
            f"Choice {index} already has {len(output)} output tokens; max_tokens {max_tokens} counts them, so "
            "nothing is left to generate. Give null for a choice that has ended.",
            param=FIELD,
        )
    stops = set(stop_token_ids)
    for position, token_id in enumerate(output, 1):
        if token_id in stops and position >= min_tokens:
            raise InvalidRequestError(
                f"Choice {index} already ended at its output token {position}, which is a stop token. Give null for a "
                "choice that has ended.",
                param=FIELD,
            )
