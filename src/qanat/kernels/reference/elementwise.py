"""Functions of single numbers, such as exp, whose results do not depend on how many numbers there are (rule R1).

torch computes most numbers of a tensor with vector instructions and the last few one by one, with another exp: the last
bit of a result would depend on its distance from the end. So the end is filled up with zeros, and so is the end of
each thread's share.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LANES = 64
"""Numbers that are computed together at most: two AVX-512 registers of 16-bit ones."""

NUMBERS_PER_THREAD = 32768
"""torch gives work to one more thread for each so many numbers."""


def elementwise(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """What `function` makes of tensors of one shape, number by number; the result is contiguous."""
    shape, num = inputs[0].shape, inputs[0].numel()
    num_whole = _whole(num)
    if num_whole == num:
        return function(*(x.contiguous() for x in inputs))
    filled = (torch.cat((x.flatten(), x.new_zeros(num_whole - num))) for x in inputs)
    return function(*filled)[:num].view(shape)


def _whole(num: int) -> int:
    """The least number not below this one of which every thread's share is a multiple of LANES."""
    num_threads: int = max(1, min(torch.get_num_threads(), -(-num // NUMBERS_PER_THREAD)))
    granule = LANES * num_threads
    return -(-num // granule) * granule
