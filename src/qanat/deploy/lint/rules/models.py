"""What depends on the model: its window, recurrent states, parser and speculation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.versions import is_in_range
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.rules.rope import rope_factor
from qanat.deploy.lint.view import SPECULATIVE, TRANSFER, LaunchView
from qanat.deploy.sizing.capture import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_NUM_SEQS,
    hybrid_block_size,
)

ROPE_FLAGS = ("--hf-overrides", "--rope-scaling", "--rope-theta")
VISION_FLAGS = (
    "--language-model-only",
    "--limit-mm-per-prompt",
    "--allowed-local-media-path",
    "--allowed-media-domains",
    "--mm-processor-cache-gb",
    "--mm-processor-kwargs",
    "--media-io-kwargs",
)
KEEP_HYBRID = "--disable-hybrid-kv-cache-manager"


def block_size(view: LaunchView) -> int | None:
    """Tokens of a block of the hybrid model that is served; None for other models."""
    model = view.model
    if model is None or not model.is_hybrid or model.num_linear_key_heads % view.tp:
        return None
    state_bytes = 2 if (view.text("--mamba-ssm-cache-dtype") or "").endswith("16") else 4
    return hybrid_block_size(
        model.num_kv_heads,
        model.head_dim,
        model.num_linear_value_heads,
        model.linear_head_dim,
        view.tp,
        state_bytes,
    )


@on_server("HYB001", "HYB002", "HYB003", "HYB013", "HYB016")
def blocks(view: LaunchView) -> Iterator[Hit]:
    """Block size and prefix caching of hybrid models."""
    size = block_size(view)
    if size is None:
        return
    if view.get("--block-size") is not None:
        yield Hit("HYB001", view.place("--block-size"), f"the block has {size} tokens, whatever is stated")
    stated = view.switch("--enable-prefix-caching")
    if stated is None and view.kv_role is None:
        message = "prefix caching is off for hybrid models unless it is asked for"
        yield Hit("HYB013", view.launch.place, message)
    if not stated:
        return
    tokens = view.max_num_batched_tokens
    if tokens is None and view.get("--max-num-batched-tokens") is None:
        tokens = DEFAULT_MAX_NUM_BATCHED_TOKENS
    place = view.place("--enable-prefix-caching")
    if tokens is not None and tokens < size:
        place = view.place("--max-num-batched-tokens", "--enable-prefix-caching")
        message = f"a block has {size} tokens at tensor parallel size {view.tp}, a step only {tokens}"
        yield Hit("HYB002", place, message)
        return
    yield Hit("HYB003", place, f"prefixes shorter than {size} tokens never hit")
    num_seqs = view.integer("--max-num-seqs")
    if tokens is None or (num_seqs is None and view.get("--max-num-seqs") is not None):
        return
    decoding = (num_seqs or DEFAULT_MAX_NUM_SEQS) * (1 + view.num_draft_tokens)
    if tokens - decoding < size:
        place = view.place("--max-num-batched-tokens", "--enable-prefix-caching")
        message = f"of {tokens} tokens a step decoding takes up to {decoding}, and a block has {size}"
        yield Hit("HYB016", place, message, f"--max-num-batched-tokens {decoding + size} or more")


@on_server("HYB004", "HYB005", "HYB007", "HYB014")
def transfer(view: LaunchView) -> Iterator[Hit]:
    """Hybrid models in disaggregated serving."""
    if view.model is None or not view.model.is_hybrid or view.json(TRANSFER) is None:
        return
    connector, node = view.connector, view.key(TRANSFER, "kv_connector")
    if connector is not None and node is not None and connector.hybrid_since is not None:
        if not is_in_range(view.version, connector.hybrid_since, None):
            message = f"{connector.name} carries states from {connector.hybrid_since} on"
            yield Hit("HYB004", node.place, message)
    if view.switch("--enable-prefix-caching") and view.kv_role is not None:
        yield Hit(
            "HYB005", view.place("--enable-prefix-caching"), "prefix caching is on beside a KV connector"
        )
    policy = view.key(TRANSFER, "kv_load_failure_policy")
    if policy is not None and policy.value == "recompute":
        yield Hit("HYB007", policy.place, "hybrid models cannot recompute a failed transfer")
    if view.switch(KEEP_HYBRID) is None and node is not None:
        yield Hit("HYB014", node.place, "--no-disable-hybrid-kv-cache-manager is not given")


@on_server("HYB008", "HYB009", "HYB010", "TOP002", "MOD001", "MOD002")
def architecture(view: LaunchView) -> Iterator[Hit]:
    """What the model's sizes and age allow."""
    model = view.model
    if model is None:
        return
    place = view.launch.words[0].place if view.launch.words else view.place("--model")
    if not is_in_range(view.version, model.first_release, None):
        yield Hit("MOD001", place, f"{model.name} is known from vllm-ascend {model.first_release} on")
        if view.method in ("mtp", "qwen3_5_mtp"):
            yield Hit("HYB008", view.place(SPECULATIVE), f"{view.method} is not known to {view.version}")
    size = view.place("--tensor-parallel-size")
    if model.is_hybrid and model.num_linear_key_heads % view.tp:
        message = f"{view.tp} does not divide the {model.num_linear_key_heads} key heads of the state"
        yield Hit("HYB009", size, message)
    elif model.num_query_heads % view.tp:
        yield Hit("TOP002", size, f"{view.tp} does not divide the {model.num_query_heads} query heads")
    window, factor = view.integer("--max-model-len"), rope_factor(view)
    is_open = factor is None and any(map(view.get, ROPE_FLAGS))
    longest = model.max_position * max(1.0, factor or 1.0)
    if window is not None and window > longest and not is_open:
        message = f"{model.name} has a window of {model.max_position} tokens"
        message += f", stretched by {factor:g} to {longest:.0f}" if factor else ""
        yield Hit("MOD002", view.place("--max-model-len"), message)
    if model.has_vision and not any(map(view.get, VISION_FLAGS)) and view.kv_role is None:
        yield Hit("HYB010", place, f"{model.name} is served with its vision part")


@on_server("MOD003")
def parser(view: LaunchView) -> Iterator[Hit]:
    """Tool parser of another family."""
    name = view.text("--tool-call-parser")
    if name is None or view.model is None:
        return
    model = view.model.name.lower()
    fitting = [
        known.name
        for known in view.knowledge.parsers.entries.values()
        if known.role == "tool" and re.match(known.models, model)
    ]
    if name in view.knowledge.parsers.entries and fitting and name not in fitting:
        message = f"{view.model.name} writes tool calls for {fitting[0]}, not for {name}"
        yield Hit("MOD003", view.place("--tool-call-parser"), message, f"--tool-call-parser {fitting[0]}")


@on_server("SPC001", "SPC002", "SPC003", "HYB015")
def speculation(view: LaunchView) -> Iterator[Hit]:
    """Drafters, and releases that are known to fail with them."""
    size = view.key(SPECULATIVE, "draft_tensor_parallel_size")
    if size is not None and isinstance(size.value, int) and size.value not in (1, view.tp):
        message = f"draft_tensor_parallel_size is {size.value}; it may be 1 or {view.tp}"
        yield Hit("SPC001", size.place, message)
    root = view.json(SPECULATIVE)
    if root is not None and view.method in ("eagle", "eagle3", "draft_model") and root.get("model") is None:
        yield Hit("SPC002", root.place, f"{view.method} needs a draft model")
    if view.model is not None and view.model.is_hybrid and "mtp" in (view.method or ""):
        yield Hit("SPC003", view.place(SPECULATIVE), "MTP of hybrid models is not reliable in 0.17.0rc1")
    if view.model is not None and view.model.name == "Qwen3.5-27B" and view.switch("--enable-prefix-caching"):
        yield Hit(
            "HYB015", view.place("--enable-prefix-caching"), "prefix caching crashed this model in 0.19.1rc1"
        )
