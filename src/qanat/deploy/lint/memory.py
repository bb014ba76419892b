"""The memory of an NPU as a command line lays it out, where it says enough to compute it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.reading import read_integer
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.cache_layout import CacheLayout, cache_of
from qanat.deploy.sizing.capture import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_NUM_SEQS,
    default_sizes,
    rewrite_sizes,
)
from qanat.deploy.sizing.communicators import uses_mc2
from qanat.deploy.sizing.layout import DEFAULT_HCCL_BUFFER_MIB, Drafter, Layout
from qanat.deploy.sizing.memory import Memory

HIGHER_SHARE_SINCE = must_parse("0.20.2rc1")
NOT_MODELLED = (
    "--kv-cache-memory-bytes",
    "--num-gpu-blocks-override",
    "--cpu-offload-gb",
    "--prefill-context-parallel-size",
    "--decode-context-parallel-size",
    "--config",
)
"""Flags that make another budget than the one that is computed."""
NUMBERS = (
    "--tensor-parallel-size",
    "--data-parallel-size",
    "--pipeline-parallel-size",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
)
_FORMAT = re.compile(r"[-_](w\d+a\d+(?:c8|sc)?(?:-mxfp\d)?)(?![a-z\d])")
_OTHER_FORMAT = re.compile(r"[-_](?:fp8|awq|gptq|int[48]|nvfp4|mxfp4|gguf|w\d+a\d+\w*)(?![a-z])")
SPARE_SHARE = 0.04
"""Of an NPU: what the estimates among its items may be off before a fault is told."""


@dataclass(frozen=True)
class Fit:
    """What a server's memory comes to.

    Attributes:
        layout: what was computed.
        memory: of the NPU that holds most.
        cache: how blocks are cut.
        most_blocks: blocks if the estimates are too high by a few percent of the NPU.
    """

    layout: Layout
    memory: Memory
    cache: CacheLayout
    most_blocks: int


def weight_variant(view: LaunchView) -> str | None:
    """The format of the weights by the model's name; None if the name does not say."""
    name = (view.model_name or "").rstrip("/").lower()
    match = _FORMAT.search(name)
    if match is not None:
        return match.group(1)
    method = view.get("--quantization")
    return None if _OTHER_FORMAT.search(name) or method is not None else "bf16"


def default_share(view: LaunchView) -> float:
    """--gpu-memory-utilization where it is not given."""
    return 0.92 if view.version >= HIGHER_SHARE_SINCE else 0.9


def fit_of(view: LaunchView) -> Fit | None:
    """The memory of a server; None if model, chip, format of weights or a size is not known.

    The same server is asked for by several rules, so the answer is kept with it.
    """
    if "fit" not in view.cache:
        view.cache["fit"] = _fit_of(view)
    fit = view.cache["fit"]
    return fit if isinstance(fit, Fit) else None


def _fit_of(view: LaunchView) -> Fit | None:
    layout = _layout_of(view)
    if layout is None:
        return None
    try:
        memory = memory_of(layout, view.knowledge)
        cache = cache_of(layout)
    except ConfigError:
        return None
    most = memory.pool_bytes + int(SPARE_SHARE * memory.total_bytes)
    return Fit(layout, memory, cache, max(0, most) // cache.pool_block_bytes)


def _layout_of(view: LaunchView) -> Layout | None:
    model, chip, variant = view.model, view.chip, weight_variant(view)
    is_stated = all(view.get(flag) is None or view.integer(flag) for flag in NUMBERS)
    if model is None or chip is None or variant is None or not is_stated or view.pp > 1:
        return None
    if any(map(view.get, NOT_MODELLED)) or view.text("--kv-cache-dtype") not in (None, "auto", "bfloat16"):
        return None
    drafter, is_known = _drafter(view)
    share = view.number("--gpu-memory-utilization")
    if not is_known or (share is None and view.get("--gpu-memory-utilization") is not None):
        return None
    share = default_share(view) if share is None else share
    if model.is_hybrid and model.num_linear_key_heads % view.tp or model.num_query_heads % view.tp:
        return None
    buffer = view.variable("HCCL_BUFFSIZE")
    prefix_caching = view.switch("--enable-prefix-caching")
    return Layout(
        model=model,
        variant=variant,
        npu_bytes=visible_bytes(chip),
        tp=view.tp,
        dp=view.dp,
        expert_parallel=view.is_expert_parallel,
        drafter=drafter,
        num_speculative_tokens=view.num_draft_tokens,
        max_model_len=view.integer("--max-model-len") or model.max_position,
        max_num_seqs=view.integer("--max-num-seqs") or DEFAULT_MAX_NUM_SEQS,
        max_num_batched_tokens=view.max_num_batched_tokens or DEFAULT_MAX_NUM_BATCHED_TOKENS,
        gpu_memory_utilization=share,
        prefix_caching=not model.is_hybrid if prefix_caching is None else prefix_caching,
        capture_sizes=captured(view),
        hccl_buffer_mib=(read_integer(buffer.value.text) if buffer else None) or DEFAULT_HCCL_BUFFER_MIB,
        is_mc2=view.is_expert_parallel and uses_mc2(chip, model, view.tp * view.dp),
        is_fused_mc2=view.fused_mc2 is not None and view.fused_mc2.is_on,
        language_model_only=view.switch("--language-model-only") is True,
        has_full_mask=chip.has_full_mask,
        state_element_bytes=2 if (view.text("--mamba-ssm-cache-dtype") or "").endswith("16") else 4,
    )


def _drafter(view: LaunchView) -> tuple[Drafter | None, bool]:
    """Whose weights speculation adds, and whether that is known."""
    if view.method is None:
        return None, view.get("--speculative-config") is None and view.get("--spec-method") is None
    if not view.num_draft_tokens:
        return None, False
    if "mtp" in view.method:
        return "mtp", True
    if view.method == "eagle3":
        return "eagle3", True
    return None, view.method in ("ngram", "suffix")


def captured(view: LaunchView) -> tuple[int, ...]:
    """The sizes that are captured, stated or by default; empty without graphs."""
    if view.is_eager:
        return ()
    rows = 1 + view.num_draft_tokens
    largest = (view.integer("--max-num-seqs") or DEFAULT_MAX_NUM_SEQS) * rows
    sizes = view.capture_sizes or default_sizes(largest)
    multiple = rows if view.has_full_decode_graphs else 1
    divisor = view.tp if view.has_flashcomm1 else 1
    return rewrite_sizes(sizes, view.max_num_batched_tokens, divisor, multiple).sizes
