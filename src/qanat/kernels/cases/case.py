"""One measurement of an op: its shape, what it must read and compute, and how its operands are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.kernels.native import register as _providers  # noqa: F401  (the native provider exists once it is imported)
from qanat.kernels.registry import all_ops

Call = Callable[[], object]
"""Runs the op once on operands that are already there."""

VALUE_TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.bfloat16, "int4": torch.bfloat16}
"""Type of the activations by kind of the weights."""

MAX_DECODE_ROWS = 64
"""Up to so many rows are those of as many requests that decode; more are one prompt's."""


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        op: name of the op.
        part: which part of the model calls it so, with the size that matters.
        rows: of the step.
        kind: of the weights, or of the values where there are none: a key of `VALUE_TYPES`.
        read_bytes: that a call must move at least.
        macs: multiply-adds of a call; 0 where they are no measure.
        operands: what the multiply-adds compute with, "float32" or "int8".
        is_streamed: the operands come from memory in a real step: weights, keys and values, states. The others have
            just been written and lie in a cache.
        prepare: (provider, how many) to as many calls, each on operands of its own where they are streamed.
    """

    op: str
    part: str
    rows: int
    kind: str
    read_bytes: int
    macs: float
    operands: str
    is_streamed: bool
    prepare: Callable[[str, int], list[Call]]

    @property
    def name(self) -> str:
        """For filters and tables."""
        return f"{self.op} {self.part}"


def function_of(op_name: str, provider: str) -> Callable[..., object]:
    """A provider's implementation of an op."""
    return next(op for op in all_ops() if op.name == op_name).provider(provider).function


def random_values(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Normal values; large tensors repeat a pool of them, as drawing takes longer than what is measured."""
    count = 1
    for size in shape:
        count *= size
    pool = torch.randn(min(count, 1_000_003)).to(dtype)
    values = torch.empty(count, dtype=dtype)
    for chunk in values.split(pool.numel()):
        chunk.copy_(pool[: chunk.numel()])
    return values.view(shape)


def decode_or_prompt(rows: int) -> tuple[int, int]:
    """(requests, rows of each) of a step of so many rows."""
    return (rows, 1) if rows <= MAX_DECODE_ROWS else (1, rows)
