"""From an API call to requests: every check that needs no model, done before anything is queued."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import ContextLengthError, InvalidRequestError
from qanat.core.request import Request
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import Timeouts
from qanat.engine.constraints import check_form
from qanat.engine.continuation import PriorOutput, check_unfinished, prior_outputs
from qanat.engine.tokenizer import Tokenizer

SEED_MODULUS = 2**64


class Admission:
    """Checks prompts and settings against the model and the cache, and fixes what a request must carry.

    Args:
        config: the resolved configuration.
        tokenizer: for bad words and end-of-sequence ids.
        max_cached_tokens: tokens that the whole cache holds; no request can be longer.
    """

    def __init__(self, config: ResolvedConfig, tokenizer: Tokenizer, max_cached_tokens: int) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._max_tokens = min(config.scheduler.max_model_len, max_cached_tokens)
        self._random = random.Random(config.seed) if config.seed is not None else secrets.SystemRandom()

    def requests(
        self,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        timeout_s: float | Timeouts | None = None,
        cache_salt: str = "",
        owner: str = "",
        boundaries: Sequence[int] = (),
        output_token_ids: PriorOutput = (),
    ) -> list[Request]:
        """One request per choice; choices whose prior output is None have ended and get none.

        Raises:
            InvalidRequestError: a token id, setting or combination that cannot be served; `param` names it.
            ContextLengthError: prompt and output do not fit the window or the cache.
        """
        self._check_prompt(prompt_token_ids)
        if not -(2**31) <= priority < 2**31:
            raise InvalidRequestError(
                f"priority must be between -2147483648 and 2147483647, got {priority}.", param="priority"
            )
        self._check_sampling(sampling)
        resolved = self._resolve(sampling, len(prompt_token_ids))
        seed = sampling.seed if sampling.seed is not None else self._random.getrandbits(64)
        now_s = time.monotonic()
        timeouts = timeout_s if isinstance(timeout_s, Timeouts) else Timeouts(total_s=timeout_s)
        eos_ids = [] if sampling.ignore_eos else list(self._tokenizer.eos_token_ids)
        stop_token_ids = list(dict.fromkeys(eos_ids + sampling.stop_token_ids))
        outputs = prior_outputs(output_token_ids, sampling.n, self._config.model.vocab_size)
        for index, output in enumerate(outputs):
            check_unfinished(
                output or (),
                index,
                max_tokens=resolved.max_tokens or 0,
                min_tokens=sampling.min_tokens,
                stop_token_ids=stop_token_ids,
            )
        return [
            Request(
                request_id=request_id if sampling.n == 1 else f"{request_id}-{index}",
                prompt_token_ids=prompt_token_ids,
                sampling=resolved,
                seed=seed % SEED_MODULUS,
                choice_index=index,
                output_token_ids=output,
                stop_token_ids=list(stop_token_ids),
                priority=priority,
                arrival_time_s=now_s,
                timeouts=timeouts,
                cache_salt=cache_salt,
                owner=owner,
                boundaries=list(boundaries),
            )
            for index, output in enumerate(outputs)
            if output is not None
        ]

    def _check_prompt(self, prompt_token_ids: list[int]) -> None:
        if not prompt_token_ids:
            raise InvalidRequestError("The prompt is empty; it needs at least one token.", param="prompt")
        try:
            msgspec.convert(prompt_token_ids, list[int])
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"The prompt's token ids: {error}.", param="prompt") from None
        vocab_size = self._config.model.vocab_size
        low, high = min(prompt_token_ids), max(prompt_token_ids)
        if low < 0 or high >= vocab_size:
            raise InvalidRequestError(
                f"The prompt contains token id {low if low < 0 else high}; ids run from 0 to {vocab_size - 1}.",
                param="prompt",
            )

    def _check_sampling(self, sampling: SamplingParams) -> None:
        sampling.check_token_ids(self._config.model.vocab_size)
        for name in ("logprobs", "prompt_logprobs"):
            wanted = getattr(sampling, name)
            if wanted is not None and wanted > self._config.max_logprobs:
                raise InvalidRequestError(
                    f"{name} must be at most {self._config.max_logprobs} (set by --max-logprobs), got {wanted}.",
                    param=name,
                )
        num_valid = self._config.num_valid_token_ids or self._config.model.vocab_size
        check_form(sampling, self._tokenizer.eos_token_ids, num_valid)
        if sampling.stop and not sampling.detokenize:
            raise InvalidRequestError(
                "stop needs text; do not set detokenize to false with it.", param="stop"
            )

    def _resolve(self, sampling: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        """Sampling settings of one choice: max_tokens known, bad words as token ids."""
        max_tokens = sampling.max_tokens
        room = self._max_tokens - num_prompt_tokens
        if room < 0 or (room == 0 and max_tokens != 0):
            raise ContextLengthError(
                f"The prompt has {num_prompt_tokens} tokens; prompt and output together may have at most "
                f"{self._max_tokens}{self._limit_reason()}. Shorten the prompt.",
                param="prompt",
            )
        if max_tokens is not None and max_tokens > room:
            raise ContextLengthError(
                f"max_tokens is {max_tokens}, but after the prompt's {num_prompt_tokens} tokens only {room} of "
                f"{self._max_tokens} are left{self._limit_reason()}. Lower max_tokens or shorten the prompt.",
                param="max_tokens",
            )
        bad_words = [*sampling.bad_words_token_ids, *self._bad_words_token_ids(sampling.bad_words)]
        return msgspec.structs.replace(
            sampling,
            n=1,
            max_tokens=room if max_tokens is None else max_tokens,
            bad_words_token_ids=bad_words,
        )

    def _limit_reason(self) -> str:
        if self._max_tokens < self._config.scheduler.max_model_len:
            return " (all that the cache holds; --kv-cache-memory-bytes sets its size)"
        return " (--max-model-len)"

    def _bad_words_token_ids(self, words: list[str]) -> list[list[int]]:
        """Each word as it is spelled at the start of a text and after a space."""
        spellings = [spelling for word in words for spelling in (word, " " + word.lstrip())]
        sequences = [self._tokenizer.encode(spelling) for spelling in spellings]
        return [list(ids) for ids in dict.fromkeys(tuple(ids) for ids in sequences) if ids]
