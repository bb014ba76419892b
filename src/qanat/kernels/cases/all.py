"""All cases of a model."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.config.model_config import ModelConfig
from qanat.kernels.cases.case import Case
from qanat.kernels.cases.mixers import mixer_cases
from qanat.kernels.cases.products import product_cases
from qanat.kernels.cases.rowwise import rowwise_cases
from qanat.kernels.cases.shared import shared_cases

FLOAT_KINDS = ("bf16", "fp32")


def cases(model: ModelConfig, rows: int, kind: str, context_len: int) -> Iterator[Case]:
    """What a step of so many rows calls, each shape once; of quantised weights, what they and their rows take part in.

    Args:
        model: its shape.
        rows: up to 64 are those of requests that decode, more are one prompt's.
        kind: of weights and values.
        context_len: tokens that a request that decodes looks back at.
    """
    yield from product_cases(model, rows, kind)
    yield from shared_cases(model, rows, kind)
    if kind in FLOAT_KINDS:
        yield from mixer_cases(model, rows, kind, context_len)
        yield from rowwise_cases(model, rows, kind)
