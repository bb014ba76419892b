"""The forms that a completion's prompt can take, each brought to token ids and checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import InvalidRequestError
from qanat.core.sampling_params import MAX_ALLOWED_ENTRIES, SamplingParams
from qanat.engine.tokenizer import Tokenizer
from qanat.server.encoding import MAX_INLINE_CHARS, PromptEncoder, num_chars_up_to

MAX_PROMPT_SCORES = 100_000
"""Most log-probabilities of prompts in one answer; so many take about a tenth of a second."""


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        token_ids: at least one.
        text: as the client wrote it, None if it sent ids.
    """

    token_ids: list[int]
    text: str | None

    def echo(self, tokenizer: Tokenizer) -> str:
        """Its text, special tokens included."""
        return tokenizer.decode(self.token_ids, skip_special_tokens=False) if self.text is None else self.text


def check_num_scores(sampling: SamplingParams, num_tokens: int, field: str) -> None:
    """Refuses log-probabilities of so many prompt tokens that building the answer would hold others up.

    Args:
        sampling: says how many alternatives are wanted, if any.
        num_tokens: of all prompts.
        field: which of the request's fields asks.

    Raises:
        InvalidRequestError: naming the field.
    """
    if sampling.prompt_logprobs is None:
        return
    num_scores = num_tokens * sampling.n * (sampling.prompt_logprobs + 1)
    if num_scores > MAX_PROMPT_SCORES:
        raise InvalidRequestError(
            f"{field} asks for {num_scores} log-probabilities of the prompt (tokens x n x (alternatives + 1)); one "
            f"answer has at most {MAX_PROMPT_SCORES}. Ask for fewer alternatives, or send the prompt in parts.",
            param=field,
        )


def check_num_allowed(sampling: SamplingParams, num_prompts: int) -> None:
    """Refuses a list of allowed tokens that so many prompts would carry along once each.

    Raises:
        InvalidRequestError: naming the field.
    """
    num_entries = num_prompts * sampling.n * len(sampling.allowed_token_ids or ())
    if num_entries > MAX_ALLOWED_ENTRIES:
        raise InvalidRequestError(
            f"allowed_token_ids comes to {num_entries} entries (prompts x n x tokens); one request has at most "
            f"{MAX_ALLOWED_ENTRIES}. Name fewer tokens, or send the prompts in parts.",
            param="allowed_token_ids",
        )


def valid_vocab_size(config: ResolvedConfig) -> int:
    """How many token ids stand for something."""
    return config.num_valid_token_ids or config.model.vocab_size


async def read_prompts(
    prompt: str | list[str | int | list[int]],
    encoder: PromptEncoder,
    config: ResolvedConfig,
    num_choices: int,
    owner: str = "",
) -> list[Prompt]:
    """The prompts of a request.

    Args:
        prompt: a text, a list of texts, a list of token ids, or a list of such lists.
        encoder: tokenises.
        config: for the vocabulary and the bound on how many can be queued.
        num_choices: choices per prompt.
        owner: whose they are.

    Raises:
        InvalidRequestError: an empty, mixed or excessive list, or a token id outside the vocabulary.
        ContextLengthError: a text is far longer than the window.
    """
    texts, id_lists = _split(prompt)
    num_requests = (len(texts) + len(id_lists)) * num_choices
    limits = config.scheduler
    if num_requests > limits.max_waiting_requests + limits.max_num_seqs:
        raise InvalidRequestError(
            f"The request asks for {num_requests} choices over all prompts; at most "
            f"{limits.max_waiting_requests + limits.max_num_seqs} can run and wait here.",
            param="prompt",
        )
    for position, ids in enumerate(id_lists):
        check_ids(ids, valid_vocab_size(config), "prompt" if len(id_lists) == 1 else f"prompt[{position}]")
    if id_lists:
        return [Prompt(ids, None) for ids in id_lists]
    names = ["prompt"] if isinstance(prompt, str) else [f"prompt[{i}]" for i in range(len(texts))]
    num_chars = num_chars_up_to(MAX_INLINE_CHARS, texts)
    return await encoder.run(owner, num_chars, _encode_all, texts, names, encoder)


def _encode_all(texts: list[str], names: list[str], encoder: PromptEncoder) -> list[Prompt]:
    """All texts in one go, so that a long list neither holds the loop up nor hops between threads."""
    prompts = []
    for text, name in zip(texts, names, strict=True):
        ids = encoder.encode(text)
        if not ids:
            raise InvalidRequestError(f"{name} is empty; it needs at least one token.", param="prompt")
        prompts.append(Prompt(ids, text))
    return prompts


def _split(prompt: str | list[str | int | list[int]]) -> tuple[list[str], list[list[int]]]:
    """Texts and lists of ids; one of the two is empty."""
    if isinstance(prompt, str):
        return [prompt], []
    if not prompt:
        raise InvalidRequestError("prompt is empty; it needs at least one token.", param="prompt")
    for kind in (str, int, list):
        if all(isinstance(item, kind) for item in prompt):
            if kind is str:
                return cast(list[str], prompt), []
            return [], [cast(list[int], prompt)] if kind is int else cast(list[list[int]], prompt)
    raise InvalidRequestError("prompt must not mix texts, token ids and lists of them.", param="prompt")


def check_ids(ids: list[int], vocab_size: int, name: str) -> None:
    """Refuses an empty prompt and ids that are none of the vocabulary's.

    Raises:
        InvalidRequestError: naming the field and the position.
    """
    if not ids:
        raise InvalidRequestError(
            f"{name} is empty; it needs at least one token.", param=name.partition("[")[0]
        )
    for position in (ids.index(min(ids)), ids.index(max(ids))):
        if not 0 <= ids[position] < vocab_size:
            raise InvalidRequestError(
                f"{name}[{position}] is token id {ids[position]}; ids run from 0 to {vocab_size - 1}.",
                param=f"{name}[{position}]",
            )
