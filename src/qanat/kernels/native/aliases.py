"""Tensors within arguments and results, and tensors that know an address without keeping its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [tensor for part in value for tensor in tensors_in(part)] if isinstance(value, tuple | list) else []
    )


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested tuples, lists and dictionaries with each tensor exchanged."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(part, change) for key, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [map_tensors(part, change) for part in value]
        if isinstance(value, list):
            return parts
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def alias(tensor: Tensor) -> Tensor:
    """The same elements at the same address; whoever uses it sees to it that the memory is there."""
    storage = tensor.untyped_storage()
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=storage.nbytes() // tensor.element_size())
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
