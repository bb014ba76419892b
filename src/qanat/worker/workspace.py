"""Bound on the temporary memory of one step, from the model's shape and the scheduler's limits. No torch here.

With T = max_num_batched_tokens, R = max_num_seqs, H = hidden size, a = bytes of an activation, f = 4 (fp32), the
bound is the largest of these moments, as the reference kernels have the most temporary copies:

    stream      T H (4a + 2f)                  residual, two inputs and an output; a norm in fp32; 3 T H a more where
                                               EAGLE-3 reads the rows of three layers, and its own moments beside
    attention   stream + T D (5 Hq a + 4 Hkv a + 3 Hq f) + 64 MiB
                                               q, gate, normed, rotated, output; keys and values; fp32 copies;
                                               scores and gathered keys
    delta net   stream + T C (4a + 3f) + T HV (6 dk + 4 dv) f + R S
                                               convolution in and out, its windows and sums; unit queries and keys and
                                               their unrepeated copies, values and results; S = states of one layer
    dense       stream + T I (4a + 3f)         gate, up, inner, product; fp32 inside
    experts     stream + T E 4f + T K H (a + f) + T (H a + I (4a + 3f)) + shared expert as dense
                                               router; all chosen experts' outputs; one expert that every token chose
    logits      stream + (N + P) V f + 96 max(2^20, V)
                                               N rows of logits and the product behind them, of P rows (N rounded up
                                               to a multiple of 16); filters of the sampler

and, for 16-bit types, 160 MiB of code that torch's CPU library compiles for each size of product and keeps: 16 to 18
numbers of rows at most (see `qanat.kernels.row_padding`) of up to a dozen matrices, about 0.7 MiB each.
T is rounded up to a multiple of 256, as the rows of a product are.

Beside these stands what forms of outputs take once the engine has been idle: 640 bytes for each token of the vocabulary
(530 were measured for 248,077 tokens; the library's tokenizer), 16 MiB of compiled forms, and one mask.

Of P ranks that share the model, each has the sizes of its own share in these moments, and beside them

    collectives T H (P + 2) f + N V f          the ranks' partial sums and their total; the joined scores

Graphs keep one more such moment, without the scores and states, of as many tokens as the largest of them has; with it
the results of exchanges, T H f + N V f where ranks share the model. Inputs and results of what is called from Python
between a graph's parts lie there like those of native ops.

A draft layer adds the hidden rows that wait for it, 64 of each request and those of two steps; its passes are smaller
than the moments above.

    drafts      (64 R + 2 T) H a

N = max(1 + k, 32 MiB / (V f)) rows, with k drafts of a request in a step, but not more than there can be. The sampler
and the log-probabilities work on at most 2^20 logits (or one row) at a time and hold 96 bytes for each where all of
them are equal, 20 in the usual case.
"""

from __future__ import annotations

from qanat.config.model_config import LINEAR_ATTENTION, ModelConfig
from qanat.config.resolved import ResolvedConfig
from qanat.core.cache_spec import DTYPE_BYTES, CacheSpec
from qanat.kernels.row_padding import ROW_GRANULE, padded_wide_rows

FP32_BYTES = 4
LIBRARY_CODE_BYTES = 160 * 2**20
LOGITS_CHUNK_BYTES = 32 * 2**20
ATTENTION_SCRATCH_BYTES = 64 * 2**20

FORM_BYTES_PER_TOKEN = 640
COMPILED_FORMS_BYTES = 16 * 2**20

RING_SIZE = 64
"""Newest hidden rows of each batch row that are kept where drafts are made of them."""

MAX_SAMPLER_ELEMENTS = 2**20
"""Logits that are filtered at a time."""

SAMPLER_BYTES_PER_ELEMENT = 96


def logits_chunk_rows(config: ResolvedConfig) -> int:
    """Rows for which logits are computed at a time."""
    limits = config.scheduler
    fitting = LOGITS_CHUNK_BYTES // (FP32_BYTES * config.model.vocab_size)
    most = max(limits.max_num_batched_tokens, limits.max_num_seqs)
    return max(1 + config.speculative.num_tokens, min(fitting, most))


def workspace_bytes(config: ResolvedConfig, spec: CacheSpec) -> int:
    """Bound on what a step allocates and frees again, and what graphs keep, in bytes; the formula is above."""
    model, width = config.model, DTYPE_BYTES[config.dtype]
    num_tokens = _step_tokens(config)
    moments = [_logits_bytes(config), *_feed_forward_bytes(model, num_tokens, width)]
    moments += _eagle3_moments(config, num_tokens, logits_chunk_rows(config))
    if model.num_full_attention_layers:
        moments.append(_attention_bytes(model, num_tokens, width) + ATTENTION_SCRATCH_BYTES)
    if model.num_linear_attention_layers:
        states = config.scheduler.max_num_seqs * spec.state_bytes // model.num_linear_attention_layers
        moments.append(_delta_net_bytes(model, num_tokens, width) + states)
    code = LIBRARY_CODE_BYTES if width < FP32_BYTES else 0
    return (
        _stream_bytes(model, num_tokens, width)
        + max(moments)
        + code
        + _forms_bytes(model.vocab_size)
        + _collective_bytes(config, num_tokens)
        + _draft_bytes(config, width)
        + graph_bytes(config)
    )


def arena_bytes(config: ResolvedConfig) -> int:
    """Room for the outputs of native ops of a step; a part of the workspace."""
    return _outputs_bytes(config, _step_tokens(config), logits_chunk_rows(config))


def graph_bytes(config: ResolvedConfig) -> int:
    """Room for what the largest graph computes, in which the smaller ones lie too; 0 without graphs."""
    num_tokens = config.graphs.max_size
    if not num_tokens:
        return 0
    num_scored_rows, model = min(num_tokens, logits_chunk_rows(config)), config.model
    exchanged = num_tokens * model.hidden_size + num_scored_rows * model.vocab_size
    results = FP32_BYTES * exchanged if config.tensor_parallel_size > 1 else 0
    return _outputs_bytes(config, num_tokens, num_scored_rows) + results


def _outputs_bytes(config: ResolvedConfig, num_tokens: int, num_scored_rows: int) -> int:
    """Bound on the outputs of native ops that a pass over so many tokens needs at a time."""
    model, width = config.model, DTYPE_BYTES[config.dtype]
    moments = [num_scored_rows * model.vocab_size * FP32_BYTES]
    moments += _eagle3_moments(config, num_tokens, num_scored_rows)
    moments += _feed_forward_bytes(model, num_tokens, width)
    if model.num_full_attention_layers:
        moments.append(_attention_bytes(model, num_tokens, width))
    if model.num_linear_attention_layers:
        moments.append(_delta_net_bytes(model, num_tokens, width))
    return _stream_bytes(model, num_tokens, width) + max(moments)


def _step_tokens(config: ResolvedConfig) -> int:
    return -(-config.scheduler.max_num_batched_tokens // ROW_GRANULE) * ROW_GRANULE


def _stream_bytes(model: ModelConfig, num_tokens: int, width: int) -> int:
    return num_tokens * model.hidden_size * ((4 + len(model.tapped_layers)) * width + 2 * FP32_BYTES)


def _collective_bytes(config: ResolvedConfig, num_tokens: int) -> int:
    size, model = config.tensor_parallel_size, config.model
    if size == 1:
        return 0
    sums = num_tokens * model.hidden_size * (size + 2) * FP32_BYTES
    return sums + logits_chunk_rows(config) * model.vocab_size * FP32_BYTES


def _draft_bytes(config: ResolvedConfig, width: int) -> int:
    layer = config.model.cached_draft_layer
    if layer is None:
        return 0
    limits = config.scheduler
    num_kept = RING_SIZE * limits.max_num_seqs + 2 * limits.max_num_batched_tokens
    return num_kept * layer.hidden_size * width


def _eagle3_moments(config: ResolvedConfig, num_tokens: int, num_scored_rows: int) -> list[int]:
    """Of a draft model of its own: the joined rows, attention that reads pairs, and scores of both vocabularies."""
    eagle3, width = config.speculative.eagle3, DTYPE_BYTES[config.dtype]
    if eagle3 is None:
        return []
    layer = eagle3.layer
    stream = num_tokens * layer.hidden_size * (4 * width + 2 * FP32_BYTES)
    joined = num_tokens * len(eagle3.tapped_layers) * eagle3.target_hidden_size * 2 * width
    pairs = num_tokens * 2 * layer.hidden_size * width
    scores = num_scored_rows * (layer.vocab_size + eagle3.draft_vocab_size) * FP32_BYTES
    attention = pairs + _attention_bytes(layer, num_tokens, width)
    return [
        stream + one for one in (joined, attention, scores, *_feed_forward_bytes(layer, num_tokens, width))
    ]


def _forms_bytes(vocab_size: int) -> int:
    mask = 2 * vocab_size
    return FORM_BYTES_PER_TOKEN * vocab_size + COMPILED_FORMS_BYTES + mask


def _attention_bytes(model: ModelConfig, num_tokens: int, width: int) -> int:
    query_heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    per_token = model.head_dim * ((5 * query_heads + 4 * kv_heads) * width + 3 * query_heads * FP32_BYTES)
    return num_tokens * per_token


def _delta_net_bytes(model: ModelConfig, num_tokens: int, width: int) -> int:
    gdn = model.gdn
    assert gdn is not None, f"a {LINEAR_ATTENTION} layer has sizes"
    convolution = model.conv_dim * (4 * width + 3 * FP32_BYTES)
    rule = gdn.num_value_heads * (6 * gdn.key_head_dim + 4 * gdn.value_head_dim) * FP32_BYTES
    return num_tokens * (convolution + rule)


def _feed_forward_bytes(model: ModelConfig, num_tokens: int, width: int) -> list[int]:
    inner = 4 * width + 3 * FP32_BYTES
    moments = [num_tokens * model.intermediate_size * inner]
    if model.moe is not None:
        moe, hidden = model.moe, model.hidden_size
        router = 4 * FP32_BYTES * moe.num_experts
        outputs = moe.top_k * hidden * (width + FP32_BYTES)
        one_expert = hidden * width + moe.expert_intermediate_size * inner
        shared = moe.shared_expert_intermediate_size * inner
        moments.append(num_tokens * (router + outputs + one_expert + shared))
    return moments


def _logits_bytes(config: ResolvedConfig) -> int:
    vocab_size = config.model.vocab_size
    num_rows = logits_chunk_rows(config)
    chunk = (num_rows + padded_wide_rows(num_rows)) * vocab_size * FP32_BYTES
    return chunk + SAMPLER_BYTES_PER_ELEMENT * max(MAX_SAMPLER_ELEMENTS, vocab_size)
