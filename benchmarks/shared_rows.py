"""What is saved by quantising rows once, and by computing the products of the same rows as one job.

    python -m benchmarks.shared_rows demo w8a8                  the demo model
    python -m benchmarks.shared_rows path/to/folder w8a8        any shape, with random weights

A pass is all layers and the head. It runs in two ways by turns, in one process on the same weights: as layers do it,
and with each product called by itself, which quantises its rows for itself. `replayed` has no Python in it, `eager` has
what steps without a graph have. Shown are medians of the rounds; the ratios are those within a round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import qanat_demo
import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.kernels.native.arena import make_arena, outputs_in
from qanat.kernels.native.graph import NativeGraph, capture
from qanat.kernels.providers import choose_providers
from qanat.layers.context import ForwardContext
from qanat.layers.linear import LinearBase
from qanat.layers.mlp import Experts
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from qanat.models.loader import load_model
from qanat.quant.at_load import OwnScheme

BLOCK_TOKENS, CONTEXT_TOKENS, ARENA_BYTES = 64, 64, 2**32
"""A request that decodes looks back at so many tokens; of the arena only what is used takes memory."""


def called_apart(model: CausalLM) -> ExitStack:
    """Within it, each product is called by itself: layers with hooks are."""
    stack = ExitStack()
    for layer in model.modules():
        if isinstance(layer, LinearBase | Experts):
            stack.callback(layer.register_forward_pre_hook(lambda module, given: None).remove)
    return stack


def context_of(model: CausalLM, num_requests: int, num_new: int) -> ForwardContext:
    """So many requests with as many new tokens each: one that decodes has a context, a prompt is its own."""
    config, dtype = model.config, model.rotary.dtype
    done = CONTEXT_TOKENS if num_new == 1 else 0
    num_blocks = -(-(done + num_new) // BLOCK_TOKENS)
    tables = torch.arange(num_requests * num_blocks, dtype=torch.int32).view(num_requests, num_blocks)
    places = torch.arange(done, done + num_new)
    slots = (tables[:, places // BLOCK_TOKENS] * BLOCK_TOKENS + places % BLOCK_TOKENS).flatten().long()
    positions = places.repeat(num_requests).expand(3 if config.rope.mrope_section else 1, -1).contiguous()
    cos, sin = model.rotary_rows(positions)
    shape = (2, tables.numel(), BLOCK_TOKENS, config.num_key_value_heads, config.head_dim)
    gdn, conv, recurrent = config.gdn, list[Tensor](), list[Tensor]()
    for _ in range(config.num_linear_attention_layers if gdn else 0):
        assert gdn is not None, "layers of this kind have sizes"
        conv.append(torch.zeros(num_requests, gdn.conv_kernel_dim - 1, gdn.conv_dim, dtype=dtype))
        recurrent.append(torch.zeros(num_requests, gdn.num_value_heads, gdn.key_head_dim, gdn.value_head_dim))
    return ForwardContext(
        query_start_loc=torch.arange(0, num_requests * num_new + 1, num_new, dtype=torch.int32),
        seq_lens=torch.full((num_requests,), done + num_new, dtype=torch.int32),
        num_computed=torch.full((num_requests,), done, dtype=torch.int32),
        block_tables=tables,
        slot_mapping=slots,
        state_ids=torch.arange(num_requests, dtype=torch.int32),
        positions=positions,
        cos=cos,
        sin=sin,
        kv_cache=[torch.zeros(shape, dtype=dtype) for _ in range(config.num_full_attention_layers)],
        conv_states=conv,
        recurrent_states=recurrent,
        block_size=BLOCK_TOKENS,
        host_query_lens=torch.full((num_requests,), num_new, dtype=torch.int32),
        host_seq_lens=torch.full((num_requests,), done + num_new, dtype=torch.int32),
    )


def median_seconds(function: Callable[[], object], count: int) -> float:
    """Of so many calls, after one that does not count."""
    spent = []
    for _ in range(count + 1):
        start_s = time.perf_counter()
        function()
        spent.append(time.perf_counter() - start_s)
    return statistics.median(spent[1:])


def compare(
    apart: Callable[[], object], shared: Callable[[], object], rounds: int, steps: int
) -> tuple[float, float, float]:
    """Medians of the seconds of both, and of the rounds' ratios."""
    pairs = [(median_seconds(apart, steps), median_seconds(shared, steps)) for _ in range(rounds)]
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    return first, second, statistics.median(one / other for one, other in pairs)


def measure(model: CausalLM, num_requests: int, num_new: int, rounds: int, steps: int) -> None:
    """Prints both lines of a kind of step."""
    context = context_of(model, num_requests, num_new)
    ids = torch.arange(num_requests * num_new) % 200 + 5

    def one_pass() -> Tensor:
        return model.compute_logits(model(ids, context)[num_new - 1 :: num_new])

    def apart_pass() -> None:
        with called_apart(model), outputs_in(memory):
            one_pass()

    def shared_pass() -> None:
        with outputs_in(memory):
            one_pass()

    def graph() -> NativeGraph:
        with torch.inference_mode():
            return capture(one_pass, memory.overlay())

    memory = make_arena(ARENA_BYTES)
    with called_apart(model):
        apart = graph()
    shared = graph()
    name = f"{num_requests} x {num_new}"
    for way, both in (("replayed", (apart.replay, shared.replay)), ("eager", (apart_pass, shared_pass))):
        apart_s, shared_s, ratio = compare(*both, rounds, steps)
        ops = f"{apart.num_ops} / {shared.num_ops}"
        sys.stdout.write(
            f"| {name} | {way} | {ops} | {apart_s * 1e6:,.0f} | {shared_s * 1e6:,.0f} | {ratio:.3f} |\n"
        )
        sys.stdout.flush()


def load(name: str, quantization: str) -> CausalLM:
    """The demo model, or random weights of a shape."""
    if name == "demo":
        folder = Path(qanat_demo.model_path())
        config = ModelConfig.from_folder(folder)
        return load_model(folder, config, torch.bfloat16, "cpu", quantization=quantization)[0]
    scheme = OwnScheme(quantization) if quantization else None
    return load_dummy(ModelConfig.from_folder(Path(name)), torch.bfloat16, scheme=scheme)


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="demo, or a folder with a config.json")
    parser.add_argument("quantization", nargs="?", default="", help="w8a8 or w4a8; bfloat16 without")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--prompts", type=int, nargs="*", default=[512])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="in each round; a tenth of them for prompts")
    parser.add_argument("--num-threads", type=int, default=2)
    arguments = parser.parse_args()
    choose_providers(arguments.num_threads)
    model = load(arguments.model, arguments.quantization)
    sys.stdout.write("| requests x tokens | way | ops | apart, us | shared, us | apart / shared |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    for batch in arguments.batches:
        measure(model, batch, 1, arguments.rounds, arguments.steps)
    for num_tokens in arguments.prompts:
        measure(model, 1, num_tokens, arguments.rounds, max(1, arguments.steps // 10))


if __name__ == "__main__":
    main()
