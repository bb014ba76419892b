"""What it costs the reference that a row of a product keeps its bits in any company (rule R1).

    python -m benchmarks.exact_products

For each shape: milliseconds of one product as torch computes it, and as the reference does.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.segmented_sums import best_us
from qanat.kernels.reference.products import product, wide_product

PRODUCTS = {"0.8B, up": (1024, 3584), "0.8B, down": (3584, 1024)}
"""Inputs and outputs."""
NUM_ROWS = (1, 16, 512)
HEAD = (1024, 50_000)
NUM_HEAD_ROWS = (1, 16, 64)


def row(name: str, num_rows: int, plain_us: float, exact_us: float) -> None:
    """Writes a line of the table."""
    times = f"{plain_us / 1e3:9.2f} {exact_us / 1e3:9.2f} ms"
    sys.stdout.write(f"{name:22}{num_rows:4} rows {times}  x{exact_us / plain_us:.1f}\n")


def widened(x: Tensor, weight: Tensor) -> Tensor:
    """Scores in fp32, the whole head at once."""
    return linear(x, weight.float())


def main() -> None:
    """Prints a line for each shape, type and number of rows."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, (num_inputs, num_outputs) in PRODUCTS.items():
        for dtype in (torch.bfloat16, torch.float32):
            weight = torch.randn(num_outputs, num_inputs).to(dtype)
            for num_rows in NUM_ROWS:
                x = torch.randn(num_rows, num_inputs).to(dtype)
                plain_us = best_us(lambda x=x, weight=weight: linear(x, weight))  # type: ignore[misc]
                exact_us = best_us(lambda x=x, weight=weight: product(x, weight))  # type: ignore[misc]
                row(f"{name} {str(dtype)[6:]}", num_rows, plain_us, exact_us)
    num_inputs, num_outputs = HEAD
    weight = torch.randn(num_outputs, num_inputs).bfloat16()
    for num_rows in NUM_HEAD_ROWS:
        x = torch.randn(num_rows, num_inputs)
        plain_us = best_us(lambda x=x, weight=weight: widened(x, weight))  # type: ignore[misc]
        exact_us = best_us(lambda x=x, weight=weight: wide_product(x, weight))  # type: ignore[misc]
        row("head bfloat16", num_rows, plain_us, exact_us)


if __name__ == "__main__":
    main()
