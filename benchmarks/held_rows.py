"""What a delta net's op takes for a step of one request that decodes, and that verifies drafts.

    python benchmarks/held_rows.py [--num-threads N] [--num-layers N]

For the shape of Qwen3.5-0.8B: microseconds of all linear-attention layers, medians of trials in turn. `absorbs` are the
rows of the step before that were accepted; `rows` are this step's, `held` until they are verified in their turn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.ops import gated_delta_net
from qanat.kernels.providers import choose_providers

HEADS, HEAD_DIM, TAPS, MAX_HELD = 16, 128, 4, 5
CHANNELS = 3 * HEADS * HEAD_DIM
NUM_TRIALS = 41
STEPS = ((1, 0, False), (4, 0, True), (4, 1, True), (4, 2, True), (4, 3, True), (4, 4, True), (4, 0, False))
"""(rows, rows that are absorbed before, whether the rows are held)."""


def int32(*values: int) -> Tensor:
    """As the op takes numbers."""
    return torch.tensor(values, dtype=torch.int32)


class Layers:
    """States and weights of so many layers, for one request."""

    def __init__(self, num_layers: int) -> None:
        self.conv = torch.randn(num_layers, 1, TAPS - 1, CHANNELS).bfloat16()
        self.states = torch.randn(num_layers, 1, HEADS, HEAD_DIM, HEAD_DIM)
        self.inputs = torch.randn(num_layers, 1, MAX_HELD, CHANNELS).bfloat16()
        self.gates = -torch.rand(num_layers, 1, MAX_HELD, 2, HEADS)
        self.weight = torch.randn(TAPS, CHANNELS).bfloat16().t()
        self.vectors = torch.rand(HEADS), torch.randn(HEADS).bfloat16()

    def step_s(self, num_rows: int, num_absorbed: int, is_held: bool) -> float:
        """Seconds of a step."""
        x = torch.randn(num_rows, CHANNELS).bfloat16()
        a, b = torch.randn(2, num_rows, HEADS).bfloat16()
        ids, computed, lens = int32(0), int32(64), int32(num_rows)
        accepted, are_held = int32(0, num_absorbed).view(1, 2), int32(is_held)
        each = zip(self.conv, self.states, self.inputs, self.gates, strict=True)
        start_s = time.perf_counter()
        for conv, states, inputs, gates in each:
            held = HeldRows(inputs, gates, accepted, are_held)
            given = (x, a, b, self.weight, *self.vectors, conv, states, ids, computed, lens, held)
            gated_delta_net(*given)
        return time.perf_counter() - start_s


def main() -> None:
    """Prints a line for each kind of step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--num-layers", type=int, default=18)
    wish = parser.parse_args()
    choose_providers(wish.num_threads)
    layers = Layers(wish.num_layers)
    times: dict[tuple[int, int, bool], list[float]] = {step: [] for step in STEPS}
    for _ in range(NUM_TRIALS):
        for step, own in times.items():
            own.append(layers.step_s(*step))
    sys.stdout.write(f"{'rows':>4} {'held':>5} {'absorbs':>8} {'us':>8}\n")
    for (num_rows, num_absorbed, is_held), own in times.items():
        held = "yes" if is_held else "no"
        sys.stdout.write(f"{num_rows:4} {held:>5} {num_absorbed:8} {1e6 * statistics.median(own):8.0f}\n")


if __name__ == "__main__":
    main()
