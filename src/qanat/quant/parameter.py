"""Parameters that know how they are sharded and what random values suit them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ParameterInfo:
    """What is known about a parameter besides its values.

    Attributes:
        shard_axis: axis that tensor parallelism splits; None if every rank holds all of it.
        sections: sizes of the parts along `shard_axis` that are each split on their own (queries, keys, values
            stored one after another); empty for one part.
        dummy_mean, dummy_std: normal distribution of random weights that keeps activations finite.
    """

    shard_axis: int | None = None
    sections: tuple[int, ...] = ()
    dummy_mean: float = 0.0
    dummy_std: float = 0.0


class WeightParameter(nn.Parameter):
    """A parameter without gradient that carries its `ParameterInfo`."""

    info: ParameterInfo

    def __new__(cls, data: Tensor, info: ParameterInfo) -> WeightParameter:
        """Wraps the tensor itself; nothing is copied."""
        parameter: WeightParameter = super().__new__(cls, data, requires_grad=False)
        parameter.info = info
        return parameter


@dataclass(frozen=True)
class ParameterFactory:
    """Makes the empty parameters of a model: one type, one device.

    Attributes:
        dtype: type of the weights; a parameter may ask for another.
        device: where they are made; "meta" costs no memory.
    """

    dtype: torch.dtype
    device: torch.device

    def make(
        self, shape: tuple[int, ...], info: ParameterInfo, dtype: torch.dtype | None = None
    ) -> WeightParameter:
        """An uninitialised parameter."""
        return WeightParameter(torch.empty(shape, dtype=dtype or self.dtype, device=self.device), info)


def linear_info(
    num_inputs: int, shard_axis: int | None = None, sections: tuple[int, ...] = ()
) -> ParameterInfo:
    """Info of a matrix [..., out, in]: random values keep the scale of what passes through."""
    return ParameterInfo(shard_axis, sections, dummy_std=num_inputs**-0.5)
