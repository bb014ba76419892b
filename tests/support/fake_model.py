"""A deterministic "model" without tensors: the next token is a hash of all before it, the seed and the choice."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.core.request import Request

MASK = 2**64 - 1
EMPTY_STATE = 0


def absorb(state: int, token_id: int) -> int:
    """The recurrent state after one more token; order matters, and so does every token."""
    state = (state ^ (token_id + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & MASK
    return state ^ (state >> 29)


def sample(state: int, *, seed: int, choice_index: int, vocab_size: int, masked: Sequence[int]) -> int:
    """The next token; masked ones (stop tokens before min_tokens) are never chosen."""
    token_id = absorb(absorb(state, seed), choice_index) % vocab_size
    while token_id in masked:
        token_id = (token_id + 1) % vocab_size
    return token_id


def undisturbed_output(request: Request, vocab_size: int) -> list[int]:
    """What the request yields when it runs alone, without scheduler, cache or interruption, prior output included."""
    state = EMPTY_STATE
    output: list[int] = []
    for token_id in request.prompt_token_ids:
        state = absorb(state, token_id)
    assert request.sampling.max_tokens is not None
    while len(output) < request.sampling.max_tokens:
        masked = request.stop_token_ids if len(output) < request.sampling.min_tokens else []
        token_id = sample(
            state, seed=request.seed, choice_index=request.choice_index, vocab_size=vocab_size, masked=masked
        )
        output.append(token_id)
        state = absorb(state, token_id)
        if token_id in request.stop_token_ids and len(output) >= request.sampling.min_tokens:
            break
    return output
