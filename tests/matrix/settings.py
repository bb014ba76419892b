"""Hypothesis strategies for weights and ways. A new setting is a line in `way_flags`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from qanat.kernels.native import module
from tests.matrix.models import DEMO, MAX_MODEL_LEN, has_states
from tests.matrix.scenario import Way, Weights

NUMBERS: list[tuple[str, str | None, str]] = [
    ("float32", None, "auto"),
    ("bfloat16", None, "auto"),
    ("bfloat16", None, "int8"),
    ("float32", None, "bfloat16"),
    ("bfloat16", "w8a8", "auto"),
    ("float32", "w8a8", "int8"),
    ("bfloat16", "w4a8", "auto"),
    ("float32", "w4a8", "auto"),
]
"""dtype, quantization, kv_cache_dtype."""

GRAPHS: list[dict[str, Any]] = [
    {},
    {"enforce_eager": True},
    {"compilation_config": {"cudagraph_mode": "NONE"}},
    *({"compilation_config": {"cudagraph_mode": mode}} for mode in ("PIECEWISE", "FULL_DECODE_ONLY", "FULL")),
    {"compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}},
    {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [3, 7]}},
    {"compilation_config": {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [2, 5, 40]}},
]


def weights() -> st.SearchStrategy[Weights]:
    """Mostly tiny models."""

    def of(family: str, numbers: tuple[str, str | None, str], seed: int) -> Weights:
        dtype, quantization, kv = numbers
        return Weights(family=family, seed=seed, dtype=dtype, quantization=quantization, kv_cache_dtype=kv)

    families = st.sampled_from(["qwen3_5", "qwen3", DEMO, "qwen3_5_moe", "qwen3_moe", "qwen3_5", DEMO])
    return st.builds(of, families, st.sampled_from(NUMBERS), st.integers(0, 3))


def ways(weights: Weights) -> st.SearchStrategy[Way]:
    """Ways to serve these weights."""
    return st.builds(
        Way,
        flags=way_flags(weights),
        num_spare_blocks=st.sampled_from([200, 0, 1, 2, 4, 8, 16]),
        instruction_set=st.sampled_from(["", *module.instruction_sets()]),
        num_starts=st.sampled_from([1, 1, 1, 2]),
        step_times=st.integers(0, 9),
    )


@st.composite
def way_flags(draw: st.DrawFn, weights: Weights) -> dict[str, Any]:
    """Flags of `qanat serve`, those left out that are as usual."""

    def choose(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    flags: dict[str, Any] = {
        "max_num_seqs": choose(8, 1, 2, 3, 5),
        "max_num_batched_tokens": choose(512, 8, 13, 24, 64, 70, 130),
        "long_prefill_token_threshold": choose(0, 0, 1, 9, 64),
        "block_size": choose(64, 64, 32, 16, 8),
        "enable_prefix_caching": choose(True, True, True, False),
        "prefix_cache_state_bytes": choose(None, 40_000, 150_000, 1_000_000),
        "speculative_config": draw(speculation(weights)),
        "scheduling_policy": choose("fcfs", "fcfs", "priority"),
        "async_scheduling": choose(False, True),
        "num_threads": choose(1, 1, 2),
        **choose(*GRAPHS),
    }
    if choose(False, False, False, True):
        flags |= {"enable_chunked_prefill": False, "max_num_batched_tokens": MAX_MODEL_LEN}
    return {name: value for name, value in flags.items() if value is not None}


@st.composite
def speculation(draw: st.DrawFn, weights: Weights) -> dict[str, Any] | None:
    """A value of --speculative-config."""
    own = "mtp" if has_states(weights) else "eagle3"
    method = draw(st.sampled_from([None, "ngram", own, own, own]))
    if method is None:
        return None
    value = {
        "method": method,
        "num_speculative_tokens": draw(st.sampled_from([1, 2, 3, 5])),
        "adaptive": draw(st.sampled_from([False, False, True])),
        "enforce_eager": draw(st.sampled_from([False, False, True])),
    }
    if method == "ngram":
        value["prompt_lookup_min"] = draw(st.sampled_from([1, 2, 3]))
        value["prompt_lookup_max"] = 3
    return value
