"""Whether packed memory that was written by another build means the same to this one."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from qanat.kernels.native.packed import LAYOUT_VERSION, is_packable, pack
from qanat.kernels.quantised import Int4Matrix, Int8Matrix, QuantisedMatrix

_NUM_OUTPUTS, _NUM_INPUTS, _GROUP_SIZE = 19, 512, 32
"""Neither a whole number of panels, nor less than a group of int4 in each segment."""


@functools.cache
def layout_digest() -> str:
    """Of the version and of headers and memory of small matrices, one of each kind that is packed."""
    digest = hashlib.sha256(str(LAYOUT_VERSION).encode())
    for probe in _probes():
        if is_packable(probe):
            packed = pack(probe)
            digest.update(repr(sorted(packed.header().items())).encode())
            digest.update((ctypes.c_char * packed.nbytes).from_address(packed.address).raw)
    return digest.hexdigest()


def _probes() -> Iterator[Tensor | QuantisedMatrix]:
    numbers = torch.arange(_NUM_OUTPUTS * _NUM_INPUTS).reshape(_NUM_OUTPUTS, _NUM_INPUTS)
    values = (numbers * 37 % 251 - 125) / 64
    yield values
    yield values.bfloat16()
    yield Int8Matrix(
        (numbers * 37 % 256 - 128).to(torch.int8), values[:, 0] ** 2, bias=values[:, 1].contiguous()
    )
    scales = (values[:, : _NUM_INPUTS // _GROUP_SIZE] ** 2).bfloat16().float()
    yield Int4Matrix((numbers * 7 % 16 - 8).to(torch.int8), scales, _GROUP_SIZE)
