"""What is refused at once: a request that can never run, whatever the others do."""

from __future__ import annotations

from qanat.cache.manager import HybridCacheManager
from qanat.config.resolved import SchedulerLimits
from qanat.core.errors import CapacityError, ContextLengthError, InvalidRequestError
from qanat.core.request import Request
from qanat.scheduler.live_request import max_computed_tokens


def check_cache(cache: HybridCacheManager) -> None:
    """Refuses a cache in which no request can run.

    Raises:
        CapacityError: naming the setting that makes the cache larger.
    """
    if cache.num_usable_blocks < 1 or (cache.spec.has_states and cache.num_usable_states < 1):
        raise CapacityError(
            f"The cache has {cache.num_usable_blocks} usable blocks and {cache.num_usable_states} usable states; at "
            "least one of each is needed. Raise --kv-cache-memory-bytes."
        )


def check_request(request: Request, limits: SchedulerLimits, cache: HybridCacheManager) -> None:
    """Refuses what can never be computed.

    Raises:
        InvalidRequestError: no prompt, no max_tokens, or an output that is already complete.
        ContextLengthError: longer than the window, the cache, or the budget of a step that may not be split.
    """
    max_tokens = request.sampling.max_tokens
    num_prompt_tokens = request.num_prompt_tokens
    if not num_prompt_tokens:
        raise InvalidRequestError("The prompt is empty; it needs at least one token.", param="prompt")
    if max_tokens is None:
        raise InvalidRequestError("max_tokens must be set before a request is queued.", param="max_tokens")
    if request.num_output_tokens and request.num_output_tokens >= max_tokens:
        raise InvalidRequestError(
            f"The request already has {request.num_output_tokens} output tokens; with max_tokens {max_tokens} there is "
            "nothing left to generate.",
            param="max_tokens",
        )
    total = request.max_total_tokens
    if total > limits.max_model_len:
        raise ContextLengthError(
            f"{num_prompt_tokens} prompt tokens and max_tokens {max_tokens} make {total} tokens; the window holds "
            f"{limits.max_model_len} (--max-model-len). Shorten the prompt or lower max_tokens.",
            param="max_tokens",
        )
    num_blocks = cache.spec.num_blocks_for(max_computed_tokens(request))
    if num_blocks > cache.num_usable_blocks:
        raise ContextLengthError(
            f"{num_prompt_tokens} prompt tokens and max_tokens {max_tokens} need {num_blocks} blocks of "
            f"{cache.block_size} tokens; the whole cache has {cache.num_usable_blocks} (--kv-cache-memory-bytes). "
            "Shorten the prompt, lower max_tokens, or give the cache more memory.",
            param="max_tokens",
        )
    if not limits.is_chunked_prefill_enabled and num_prompt_tokens > limits.max_num_batched_tokens:
        raise ContextLengthError(
            f"The prompt has {num_prompt_tokens} tokens and chunked prefill is off, so it must fit one step of "
            f"{limits.max_num_batched_tokens} tokens (--max-num-batched-tokens). Turn --enable-chunked-prefill on or "
            "raise the budget.",
            param="prompt",
        )
