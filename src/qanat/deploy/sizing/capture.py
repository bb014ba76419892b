"""Arithmetic of graph capture: what becomes of the stated sizes, and how many the streams allow."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_STREAMS = 1800
STREAMS_PER_GROUP = 40
DEFAULT_MAX_NUM_SEQS = 256
"""What `vllm serve` takes on Ascend where --max-num-seqs is not given."""
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_MAX_CAPTURE = 512


@dataclass(frozen=True)
class Rewriting:
    """What happens to capture sizes, step by step.

    Attributes:
        over_budget: dropped because a step is not that large.
        not_divisible: dropped because tensor parallelism does not divide them (FlashComm1).
        rounded: size before and after rounding up to the multiple that speculation needs.
        beyond: dropped because rounding took them above the largest.
        sizes: what is captured.
    """

    over_budget: tuple[int, ...]
    not_divisible: tuple[int, ...]
    rounded: tuple[tuple[int, int], ...]
    beyond: tuple[int, ...]
    sizes: tuple[int, ...]


def rewrite_sizes(
    sizes: tuple[int, ...], max_num_batched_tokens: int | None, divisor: int, multiple: int
) -> Rewriting:
    """Follows vLLM and vllm-ascend up to 0.26.

    Args:
        sizes: as stated.
        max_num_batched_tokens: larger sizes go; None if unknown.
        divisor: tensor parallel size with FlashComm1, else 1.
        multiple: 1 + speculative tokens with full decode graphs, else 1.
    """
    limit = max_num_batched_tokens or max(sizes, default=0)
    kept = sorted({size for size in sizes if size <= limit})
    divisible = [size for size in kept if size % divisor == 0]
    largest = max(divisible, default=0)
    step = max(divisor, multiple) if divisor > 1 else multiple
    pairs = [(size, math.ceil(size / step) * step) for size in divisible]
    return Rewriting(
        over_budget=tuple(sorted({size for size in sizes if size > limit})),
        not_divisible=tuple(size for size in kept if size % divisor),
        rounded=tuple((size, up) for size, up in pairs if up != size),
        beyond=tuple(size for size, up in pairs if up > largest),
        sizes=tuple(sorted({up for _, up in pairs if up <= largest})),
    )


def default_sizes(largest: int) -> tuple[int, ...]:
    """What is captured where no sizes are stated: 1, 2, 4, each eighth to 256, each sixteenth beyond.

    Args:
        largest: --max-num-seqs times 1 + speculative tokens; at most 512 count.
    """
    end = min(largest, DEFAULT_MAX_CAPTURE)
    return tuple(size for size in (1, 2, 4, *range(8, 257, 8), *range(272, end + 1, 16)) if size <= end)


def max_num_graphs(
    num_layers: int, num_draft_layers: int, num_groups: int, is_moe: bool, is_dp: bool, is_aiv: bool
) -> int:
    """How many sizes PIECEWISE graphs may have within the stream budget of releases up to 0.20.2.

    Args:
        num_layers: hidden layers of the model.
        num_draft_layers: layers of the drafter; 0 without speculation.
        num_groups: how many of data and tensor parallelism are above 1, plus one each for expert parallelism and
            the overlap of the shared expert.
        is_moe: the model has experts.
        is_dp: the data parallel size is above 1.
        is_aiv: collectives run on the vector cores.
    """
    per_graph = num_layers + 1 + (num_draft_layers + 1 if num_draft_layers else 0)
    if not is_aiv:
        return int((MAX_STREAMS - num_groups * STREAMS_PER_GROUP) / per_graph / (1 + 2 * num_groups))
    factor = 1 + num_groups + (1 if is_moe and is_dp else 0)
    budget = MAX_STREAMS if is_moe else MAX_STREAMS - factor * per_graph
    return int(budget / per_graph / factor)


def thin_out(sizes: tuple[int, ...], num: int) -> tuple[int, ...]:
    """`num` of the sizes, evenly spread, the smallest and the largest among them."""
    if num >= len(sizes):
        return sizes
    if num <= 1:
        return sizes[-1:]
    return tuple(sorted({sizes[round(i * (len(sizes) - 1) / (num - 1))] for i in range(num)}))


def mc2_buffer_mib(
    hidden_size: int, num_experts: int, num_experts_per_token: int, num_shared: int, ep: int, max_rows: int
) -> float:
    """MiB that dispatch and combine need in the HCCL buffer, for `max_rows` tokens per rank (at most 512)."""
    row = 2 * hidden_size
    dispatched = _align(_align(row, 32) + 64, 512)
    combined = _align(row, 512)
    local_experts = num_experts // ep
    rows = min(max_rows, 512)
    total = rows * dispatched * ep * local_experts + rows * combined * (num_experts_per_token + num_shared)
    return 2 * total / 2**20


def _align(value: int, to: int) -> int:
    return math.ceil(value / to) * to


def hybrid_block_size(
    num_kv_heads: int,
    head_dim: int,
    num_value_heads: int,
    linear_head_dim: int,
    tp: int,
    state_bytes: int = 4,
) -> int:
    """Tokens of a block of a hybrid model: keys of that many tokens are as large as one recurrent state.

    Args:
        num_kv_heads: of the attention layers.
        head_dim: of the attention layers.
        num_value_heads: of the recurrent layers.
        linear_head_dim: of the recurrent layers.
        tp: tensor parallel size.
        state_bytes: of one element of the state; 4 for float32.
    """
    key_bytes = max(1, num_kv_heads // tp) * head_dim * 2
    state = num_value_heads // tp * linear_head_dim**2 * state_bytes
    return 128 * math.ceil(state / (128 * key_bytes))
