"""Bounds of scheduler and cache: what was wished, checked against each other, and defaults for the rest."""

from __future__ import annotations

from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.config.model_config import ModelConfig
from qanat.config.resolved import CacheLimits, SchedulerLimits
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

BLOCK_SIZE = 64
"""Tokens in a KV block; recurrent states are kept at multiples of it."""

DEFAULT_MAX_NUM_SEQS = 64

DEFAULT_MAX_NUM_BATCHED_TOKENS = 512
"""A larger step gains little on a CPU and makes everyone wait longer for its end."""

DEFAULT_MEMORY_SHARE = 0.5


def dtype_name(spelling: str) -> str:
    """A number type by its full name; vLLM's short names are "half" and "float"."""
    return {"half": "float16", "float": "float32"}.get(spelling, spelling)


def scheduler_limits(
    wishes: EngineConfig, model: ModelConfig, environment: Environment, said: list[Decision]
) -> tuple[SchedulerLimits, tuple[str, ...]]:
    """The scheduler's bounds, and the names of those that nobody set: the memory plan may lower them.

    Raises:
        ConfigError: wishes that contradict each other or the model.
    """
    open_limits = tuple(name for name in ("max_model_len", "max_num_seqs") if getattr(wishes, name) is None)
    max_model_len = _max_model_len(wishes, model, environment, said)
    max_num_seqs, max_num_batched_tokens = _batch(wishes, max_model_len, said)
    if not wishes.enable_chunked_prefill and max_num_batched_tokens < max_model_len:
        raise ConfigError(
            f"--no-enable-chunked-prefill needs --max-num-batched-tokens ({max_num_batched_tokens}) to be at least "
            f"--max-model-len ({max_model_len}): raise the first, lower the second, or leave chunked prefill on.",
            param="--max-num-batched-tokens",
        )
    limits = SchedulerLimits(
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        policy=wishes.scheduling_policy,
        max_waiting_requests=wishes.max_num_queued_reqs,
        max_waiting_tokens=wishes.max_num_queued_tokens,
        max_queue_wait_s=wishes.max_queue_wait_s,
        max_decode_stall_s=wishes.max_decode_stall_s,
        long_prefill_token_threshold=wishes.long_prefill_token_threshold,
        is_chunked_prefill_enabled=wishes.enable_chunked_prefill,
    )
    return limits, open_limits


def _max_model_len(
    wishes: EngineConfig, model: ModelConfig, environment: Environment, said: list[Decision]
) -> int:
    window, wanted = model.context_window, wishes.max_model_len
    if wanted is None:
        got, why, tokens = window, "the model's window", wishes.max_num_batched_tokens
        if not wishes.enable_chunked_prefill and tokens is not None and tokens < window:
            got, why = (
                tokens,
                "without chunked prefill a prompt must fit one step of --max-num-batched-tokens",
            )
        said.append(Decision("--max-model-len", None, got, why))
        return got
    if wanted > window:
        if not environment.switch("VLLM_ALLOW_LONG_MAX_MODEL_LEN"):
            raise ConfigError(
                f"--max-model-len {wanted} exceeds the model's window of {window} tokens; lower it, or set "
                "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 if the model is known to stand it.",
                param="--max-model-len",
            )
        why = f"VLLM_ALLOW_LONG_MAX_MODEL_LEN allows it; the model was made for {window} tokens"
        said.append(Decision("--max-model-len", wanted, wanted, why))
    return wanted


def _batch(wishes: EngineConfig, max_model_len: int, said: list[Decision]) -> tuple[int, int]:
    """Requests and tokens of a step; each running request needs room for one token."""
    seqs, tokens = wishes.max_num_seqs, wishes.max_num_batched_tokens
    if seqs is not None and tokens is not None and tokens < seqs:
        raise ConfigError(
            f"--max-num-batched-tokens {tokens} is less than --max-num-seqs {seqs}: every running request needs "
            "room for a token in each step. Raise the first or lower the second.",
            param="--max-num-batched-tokens",
        )
    if tokens is None:
        got, why = DEFAULT_MAX_NUM_BATCHED_TOKENS, "default"
        if seqs is not None and seqs > got:
            got, why = seqs, "a token for each running request"
        if not wishes.enable_chunked_prefill and max_model_len > got:
            got, why = max_model_len, "without chunked prefill a step must hold the longest prompt"
        said.append(Decision("--max-num-batched-tokens", None, got, why))
    elif seqs is not None and tokens > seqs * max_model_len:
        got = seqs * max_model_len
        why = f"{seqs} requests of {max_model_len} tokens cannot use more"
        said.append(Decision("--max-num-batched-tokens", tokens, got, why))
    else:
        got = tokens
    if seqs is None:
        seqs = min(DEFAULT_MAX_NUM_SEQS, got)
        why = "default" if seqs == DEFAULT_MAX_NUM_SEQS else "a step has room for no more tokens"
        said.append(Decision("--max-num-seqs", None, seqs, why))
    return seqs, got


def cache_limits(wishes: EngineConfig, dtype: str, said: list[Decision]) -> CacheLimits:
    """How the cache is sized.

    Raises:
        ConfigError: a block size that does not divide 64.
    """
    kv_cache_dtype = dtype_name(wishes.kv_cache_dtype)
    return CacheLimits(
        block_size=_block_size(wishes, said),
        kv_cache_dtype=dtype if kv_cache_dtype == "auto" else kv_cache_dtype,
        conv_dtype=dtype if kv_cache_dtype == "int8" else "",
        memory_share=_memory_share(wishes, said),
        kv_cache_memory_bytes=wishes.kv_cache_memory_bytes,
        num_blocks_override=wishes.num_gpu_blocks_override,
    )


def _block_size(wishes: EngineConfig, said: list[Decision]) -> int:
    wanted = wishes.block_size
    if wanted is None:
        return BLOCK_SIZE
    if wanted > BLOCK_SIZE:
        why = "64 tokens are the largest block: smaller blocks waste less and cost nothing here"
        said.append(Decision("--block-size", wanted, BLOCK_SIZE, why))
        return BLOCK_SIZE
    if BLOCK_SIZE % wanted:
        raise ConfigError(
            f"--block-size {wanted} does not divide 64; give 64 or one of 32, 16, 8, 4, 2, 1.",
            param="--block-size",
        )
    return wanted


def _memory_share(wishes: EngineConfig, said: list[Decision]) -> float:
    share, utilization = wishes.memory_share, wishes.gpu_memory_utilization
    if share is not None:
        if utilization is not None:
            why = "--memory-share says it in this engine's words"
            said.append(Decision("--gpu-memory-utilization", utilization, "ignored", why))
        return share
    if utilization is not None:
        why = "on a CPU it is the share of the available memory for weights, cache and workspace"
        said.append(Decision("--gpu-memory-utilization", utilization, f"--memory-share {utilization}", why))
        return utilization
    why = "default: half of the available memory for weights, cache and workspace"
    said.append(Decision("--memory-share", None, DEFAULT_MEMORY_SHARE, why))
    return DEFAULT_MEMORY_SHARE
