"""What it costs the reference to add a row-parallel product in 8 fixed segments, as rule R12 has it.

    python benchmarks/segmented_sums.py

For each shape: microseconds of one product as it is, and of 8 products of an eighth of the inputs each, whose results
are added in fp32 as a tree, so that 1, 2, 4 and 8 ranks would add the same numbers in the same order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

NUM_SEGMENTS = 8
NUM_TRIALS = 5
TRIAL_S = 0.05
SHAPES = {
    "demo, feed-forward": (512, 128),
    "0.8B, attention": (2048, 1024),
    "0.8B, feed-forward": (3584, 1024),
}
"""Inputs and outputs of the product."""
NUM_ROWS = (1, 8, 256)


def in_segments(x: Tensor, weight: Tensor) -> Tensor:
    """The product, added segment by segment: x is [T, inputs], weight [outputs, inputs]."""
    width = x.shape[1] // NUM_SEGMENTS
    starts = range(0, x.shape[1], width)
    sums = [linear(x[:, start : start + width], weight[:, start : start + width]).float() for start in starts]
    while len(sums) > 1:
        sums = [sums[i] + sums[i + 1] for i in range(0, len(sums), 2)]
    return sums[0].to(x.dtype)


def best_us(work: Callable[[], object]) -> float:
    """Microseconds of one call, the best of several trials."""
    best_s = float("inf")
    for _ in range(NUM_TRIALS):
        count, start_s = 0, time.perf_counter()
        while (spent_s := time.perf_counter() - start_s) < TRIAL_S or not count:
            work()
            count += 1
        best_s = min(best_s, spent_s / count)
    return best_s * 1e6


def main() -> None:
    """Prints a line for each shape, type and number of rows."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, (num_inputs, num_outputs) in SHAPES.items():
        for dtype in (torch.float32, torch.bfloat16):
            for num_rows in NUM_ROWS:
                x = torch.randn(num_rows, num_inputs).to(dtype)
                weight = torch.randn(num_outputs, num_inputs).to(dtype)
                whole = best_us(lambda x=x, weight=weight: linear(x, weight))  # type: ignore[misc]
                cut = best_us(lambda x=x, weight=weight: in_segments(x, weight))  # type: ignore[misc]
                kind = str(dtype).removeprefix("torch.")
                line = f"{name:20}{kind:10}{num_rows:4} rows {whole:8.0f} {cut:8.0f} x{cut / whole:.1f}"
                sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
