"""Layers whose matrices are stored in some format of a checkpoint, and become what the products read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qanat.kernels import ops
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.quant.base import ExpertSizes, LinearSizes, Measure, StoredKind
from qanat.quant.cut import MatrixCut
from qanat.quant.cut_inputs import cut_inputs
from qanat.quant.parameter import ParameterFactory, ParameterInfo, WeightParameter
from qanat.quant.stack import Matrix, Stack
from qanat.quant.unquantized import ExpertsProducts, WeightProducts

GATE, UP, DOWN = "gate_proj", "up_proj", "down_proj"


class MatrixFormat(Protocol):
    """One way in which a checkpoint stores a matrix.

    Attributes:
        name: the kind, as the checkpoint calls it.
        note: how it is computed otherwise than the checkpoint means it; empty if it is not.
    """

    name: str
    note: str

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers this rank's part of the tensors on `owner`, named as the checkpoint names them."""
        ...

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Matrix:
        """What the registered tensors, filled, mean.

        Raises:
            CheckpointError: a value is impossible; names the tensor.
        """
        ...

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Matrix:
        """The same without values, on the meta device, for unquantised weights of this type."""
        ...

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """Whether a part of a row can mean something else than in the whole: what is rounded anew has scales of rows.

        A rank that keeps some of the inputs then reads all of them.
        """
        ...


def read_cut(matrix_format: MatrixFormat, cut: MatrixCut) -> MatrixCut:
    """The region that is read for a rank's region."""
    return cut.uncut if cut.cuts_inputs and matrix_format.needs_whole_rows(cut) else cut


def read_matrix(matrix_format: MatrixFormat, owner: nn.Module, cut: MatrixCut) -> Matrix:
    """A rank's region of a matrix.

    Raises:
        CheckpointError: see `MatrixFormat.matrix`.
    """
    return _own_part(matrix_format.matrix(owner, read_cut(matrix_format, cut)), matrix_format, cut)


def outline_of(matrix_format: MatrixFormat, cut: MatrixCut, dtype: torch.dtype) -> Matrix:
    """The same without values."""
    return _own_part(matrix_format.outline(read_cut(matrix_format, cut), dtype), matrix_format, cut)


def _own_part(matrix: Matrix, matrix_format: MatrixFormat, cut: MatrixCut) -> Matrix:
    if isinstance(matrix, Tensor) or read_cut(matrix_format, cut) is cut:
        return matrix
    own = cut_inputs(matrix, cut.shard)
    # Products of all ranks are added, so one of them has the bias.
    return replace(own, bias=None) if isinstance(own, Int8Matrix) and not cut.is_first else own


FIXED_SCALES = "experts quantise activations from each row; the checkpoint's fixed scales are not used"
"""Note of experts whose kind fixes the scales of the activations."""


class StoredLinear(WeightProducts):
    """A `LinearMethod` for a matrix that is stored in a format.

    Args:
        matrix_format: of the matrix.
    """

    def __init__(self, matrix_format: MatrixFormat) -> None:
        self._format = matrix_format

    def create(self, layer: nn.Module, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers the format's tensors."""
        layer.cut, layer.dtype = MatrixCut.of(sizes, factory), factory.dtype  # type: ignore[assignment]
        self._format.create(layer, read_cut(self._format, layer.cut), factory)  # type: ignore[arg-type]  # just set

    def finalize(self, layer: nn.Module) -> None:
        """Converts and packs the matrix; the tensors it was stored in are given up."""
        matrix = read_matrix(self._format, layer, layer.cut)  # type: ignore[arg-type]
        drop_parameters(layer)
        keep(layer, "weight", ops.pack_matrix(matrix))

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """One matrix."""
        outline = outline_of(self._format, layer.cut, layer.dtype)  # type: ignore[arg-type]
        yield StoredKind(self._format.name, stored_name(outline), 1, measure(outline), self._format.note)


class StoredExperts(ExpertsProducts):
    """An `ExpertsMethod` for experts that are stored one by one; their formats may differ.

    Each matrix has a module of its own, named as in the checkpoint: `3.gate_proj` of the layer's `experts`.

    Args:
        formats: of each expert, by the names of its three matrices.
    """

    def __init__(self, formats: Sequence[dict[str, MatrixFormat]]) -> None:
        self._formats = formats

    def create(self, layer: nn.Module, sizes: ExpertSizes, factory: ParameterFactory) -> None:
        """Registers the formats' tensors."""
        outer, inner = sizes.hidden_size, sizes.intermediate_size
        wide = MatrixCut.of(LinearSizes(outer, inner, 0), factory)
        layer.cuts = {GATE: wide, UP: wide, DOWN: MatrixCut.of(LinearSizes(inner, outer, 1), factory)}  # type: ignore[assignment]
        layer.dtype = factory.dtype  # type: ignore[assignment]
        for expert, formats in enumerate(self._formats):
            holder = nn.Module()
            for name, matrix_format in formats.items():
                part = nn.Module()
                matrix_format.create(part, read_cut(matrix_format, layer.cuts[name]), factory)  # type: ignore[index]
                holder.add_module(name, part)
            layer.add_module(str(expert), holder)

    def finalize(self, layer: nn.Module) -> None:
        """Converts, stacks and packs; of what the matrices were stored in, each is given up as soon as it is copied."""
        stacks = {name: self._filled(layer, parts) for name, parts in _STACKS.items()}
        for expert in range(len(self._formats)):
            delattr(layer, str(expert))
        for name in _STACKS:
            keep(layer, name, ops.pack_experts(stacks.pop(name)))

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """The matrices of each format; the bytes are shared out evenly, as a stack is stored in one way."""
        for parts in _STACKS.values():
            outlines = self._outlines(layer, parts)
            stack = Stack.for_all(outlines, layer.dtype).matrix  # type: ignore[arg-type]
            share = measure(stack) // (len(self._formats) * len(parts))
            for formats, row in zip(self._formats, outlines, strict=True):
                for part, outline in zip(parts, row, strict=True):
                    is_fixed = isinstance(outline, Int8Matrix) and outline.static is not None
                    note = FIXED_SCALES if is_fixed else formats[part].note
                    yield StoredKind(formats[part].name, stored_name(stack), 1, share, note)

    def _outlines(self, layer: nn.Module, parts: Sequence[str]) -> list[list[Matrix]]:
        cuts, dtype = layer.cuts, layer.dtype
        return [
            [outline_of(formats[part], cuts[part], dtype) for part in parts]  # type: ignore[index, arg-type]
            for formats in self._formats
        ]

    def _filled(self, layer: nn.Module, parts: Sequence[str]) -> Any:
        stack = Stack.for_all(self._outlines(layer, parts), layer.dtype)  # type: ignore[arg-type]
        stack.allocate()
        for expert, formats in enumerate(self._formats):
            holder = layer.get_submodule(str(expert))
            for position, part in enumerate(parts):
                owner = holder.get_submodule(part)
                stack.put(expert, position, read_matrix(formats[part], owner, layer.cuts[part]))  # type: ignore[index]
                drop_parameters(owner)
        return stack.matrix


_STACKS = {"gate_up_proj": (GATE, UP), "down_proj": (DOWN,)}


def stored_name(matrix: Matrix) -> str:
    """What a matrix is stored as, for people."""
    if isinstance(matrix, Int8Matrix):
        return "int8"
    if isinstance(matrix, Int4Matrix):
        return "int4"
    return str(matrix.dtype).removeprefix("torch.")


def drop_parameters(owner: nn.Module) -> None:
    """Gives up all parameters of a module."""
    for name in [name for name, _ in owner.named_parameters(recurse=False)]:
        delattr(owner, name)


def keep(layer: nn.Module, name: str, packed: Any) -> None:
    """Puts a packed matrix on a layer; a plain tensor becomes a parameter, so that it is counted."""
    if isinstance(packed, Tensor):
        packed = WeightParameter(packed, ParameterInfo(whole_shape=tuple(packed.shape)))
    setattr(layer, name, packed)
