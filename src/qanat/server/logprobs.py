"""Log-probabilities in the formats of the two endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qanat.core.events import LogprobEntry, PositionLogprobs
from qanat.engine.detokenizer import IncrementalDetokenizer
from qanat.engine.tokenizer import Tokenizer
from qanat.server.events import ScoredToken
from qanat.server.responses import (
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)


def chat_tokens(tokens: Iterable[ScoredToken], *, has_ids: bool) -> list[TokenLogprob]:
    """Entries of a chat answer. Each alternative is spelled by itself, never joined with its neighbours.

    Args:
        tokens: generated tokens.
        has_ids: spell tokens as "token_id:N".
    """
    return [
        TokenLogprob(
            _chat_text(token.chosen, has_ids=has_ids),
            token.chosen.logprob,
            list(token.text_bytes),
            [
                TopLogprob(_chat_text(entry, has_ids=has_ids), entry.logprob, entry.token_bytes)
                for entry in token.top
            ],
        )
        for token in tokens
    ]


def completion_logprobs(
    tokens: Iterable[ScoredToken], *, has_ids: bool, start: int = 0
) -> CompletionLogprobs:
    """The older format's four lists.

    Args:
        tokens: generated tokens.
        has_ids: spell tokens as "token_id:N".
        start: offset of the generated text in the choice's text, where the prompt is echoed.
    """
    entries = list(tokens)
    return CompletionLogprobs(
        tokens=[_key(token.chosen, has_ids=has_ids) for token in entries],
        token_logprobs=[token.chosen.logprob for token in entries],
        top_logprobs=[_top_by_text(token.chosen, token.top, has_ids=has_ids) for token in entries],
        text_offset=[start + token.text_offset for token in entries],
    )


def echoed_logprobs(
    prompt_token_ids: Sequence[int],
    positions: Sequence[PositionLogprobs | None],
    tokenizer: Tokenizer,
    *,
    has_ids: bool,
    num_top: int,
) -> CompletionLogprobs:
    """The older format for a prompt's tokens; the first has no log-probability, as nothing stands before it.

    Args:
        prompt_token_ids: the prompt.
        positions: one entry per prompt token.
        tokenizer: spells them.
        has_ids: spell tokens as "token_id:N".
        num_top: alternatives that the client asked for; `positions` may hold more.
    """
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    offsets = [0]
    for token_id in prompt_token_ids[:-1]:
        offsets.append(offsets[-1] + len(detokenizer.push(token_id)))
    return CompletionLogprobs(
        tokens=[_key(_bare_entry(token_id, tokenizer), has_ids=has_ids) for token_id in prompt_token_ids],
        token_logprobs=[None if position is None else position.chosen.logprob for position in positions],
        top_logprobs=[
            None
            if position is None
            else _top_by_text(position.chosen, position.top[:num_top], has_ids=has_ids)
            for position in positions
        ],
        text_offset=offsets,
    )


def join_logprobs(parts: Sequence[CompletionLogprobs]) -> CompletionLogprobs:
    """One record out of several, in order."""
    return CompletionLogprobs(
        tokens=[token for part in parts for token in part.tokens],
        token_logprobs=[value for part in parts for value in part.token_logprobs],
        top_logprobs=[top for part in parts for top in part.top_logprobs],
        text_offset=[offset for part in parts for offset in part.text_offset],
    )


def vllm_prompt_logprobs(positions: Sequence[PositionLogprobs | None]) -> PromptLogprobs:
    """A prompt's log-probabilities in vLLM's form: per position, by token id."""
    return [
        None
        if position is None
        else {
            str(entry.token_id): PromptLogprob(entry.logprob, entry.rank, entry.token)
            for entry in [*position.top, position.chosen]
        }
        for position in positions
    ]


def _chat_text(entry: LogprobEntry, *, has_ids: bool) -> str:
    return f"token_id:{entry.token_id}" if has_ids else entry.token


def _key(entry: LogprobEntry, *, has_ids: bool) -> str:
    """A token's spelling in the older format: bytes that are not text are written out, so that keys stay distinct."""
    if has_ids:
        return f"token_id:{entry.token_id}"
    try:
        return bytes(entry.token_bytes).decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.token_bytes)


def _top_by_text(chosen: LogprobEntry, top: Iterable[LogprobEntry], *, has_ids: bool) -> dict[str, float]:
    """Alternatives by spelling, the chosen token always among them; of equal spellings the likelier one stays."""
    by_text: dict[str, float] = {}
    for entry in [*top, chosen]:
        by_text.setdefault(_key(entry, has_ids=has_ids), entry.logprob)
    return by_text


def _bare_entry(token_id: int, tokenizer: Tokenizer) -> LogprobEntry:
    raw = tokenizer.token_bytes(token_id)
    return LogprobEntry(token_id, raw.decode(errors="replace"), list(raw), 0.0, 0)
