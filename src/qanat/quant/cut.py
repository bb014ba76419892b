"""The region of a matrix that one rank keeps, and what that means for the tensors that a format stores it in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from qanat.core.errors import ConfigError
from qanat.quant.base import LinearSizes
from qanat.quant.parameter import ParameterFactory, ParameterInfo, Shard, WeightParameter, linear_info


@dataclass(frozen=True)
class Along:
    """How an axis of a stored tensor follows an axis of the matrix.

    Attributes:
        axis: of the stored tensor.
        granule: rows or columns of the matrix that one entry holds or describes.
        is_packed: entries hold whole granules, so that a cut must not go through one; otherwise entries describe them,
            and a rank keeps every entry that describes some of its part.
    """

    axis: int
    granule: int = 1
    is_packed: bool = False


@dataclass(frozen=True)
class MatrixCut:
    """A matrix [out, in] and this rank's region of it.

    Attributes:
        num_outputs, num_inputs: of the whole matrix.
        shard: axis 0 cuts the outputs, axis 1 the inputs; None for all of it.
        rank: of the ranks that share the matrix.
        is_row_parallel: ranks share its inputs, however many of them there are.
    """

    num_outputs: int
    num_inputs: int
    shard: Shard | None = None
    rank: int = 0
    is_row_parallel: bool = False

    @classmethod
    def of(cls, sizes: LinearSizes, factory: ParameterFactory) -> MatrixCut:
        """The region of the factory's rank."""
        info = linear_info(sizes.num_inputs, sizes.shard_axis, sizes.sections, sizes.num_units)
        group = factory.group
        own = info.sharded((sizes.num_outputs, sizes.num_inputs), group.rank, group.size)
        return cls(sizes.num_outputs, sizes.num_inputs, own.shard, group.rank, sizes.shard_axis == 1)

    @property
    def uncut(self) -> MatrixCut:
        """The whole matrix, for the same rank."""
        return replace(self, shard=None)

    @property
    def own_shape(self) -> tuple[int, int]:
        """(outputs, inputs) of the region."""
        if self.shard is None:
            return self.num_outputs, self.num_inputs
        length = self.shard.length
        return (length, self.num_inputs) if self.shard.axis == 0 else (self.num_outputs, length)

    @property
    def cuts_inputs(self) -> bool:
        """The ranks' products are added, so what is added to the product must be there once."""
        return self.shard is not None and self.shard.axis == 1

    @property
    def is_first(self) -> bool:
        """This rank adds what is to be added once."""
        return not self.cuts_inputs or self.rank == 0

    def region(self, along: Along, matrix_axis: int) -> Shard | None:
        """The part of a stored tensor that this rank needs, where its axis follows that axis of the matrix.

        Raises:
            ConfigError: the cut goes through a packed granule.
        """
        if self.shard is None or self.shard.axis != matrix_axis:
            return None
        size = along.granule
        pieces = []
        for start, length in self.shard.pieces:
            if along.is_packed and (start % size or length % size):
                raise ConfigError(
                    f"The checkpoint packs {size} values of a matrix together, and parts of {length} are no multiple "
                    "of that; lower --tensor-parallel-size.",
                    param="--tensor-parallel-size",
                )
            first = start // size
            pieces.append((first, -(-(start + length) // size) - first))
        return Shard(along.axis, tuple(pieces), tuple(start // size for start in self.shard.starts))

    def positions(self, matrix_axis: int, granule: int) -> Tensor:
        """Where each row (axis 0) or column (axis 1) of the region lies in what `region` reads, granules spread out.

        Divided by the granule it is the entry that describes the row or column.
        """
        if self.shard is None or self.shard.axis != matrix_axis:
            return torch.arange((self.num_outputs, self.num_inputs)[matrix_axis])
        parts, offset = [], 0
        for start, length in self.shard.pieces:
            first = start // granule
            parts.append(torch.arange(start, start + length) + (offset - first) * granule)
            offset += -(-(start + length) // granule) - first
        return torch.cat(parts)


@dataclass(frozen=True)
class Registrar:
    """Registers the tensors that a matrix is stored in.

    Attributes:
        owner: module that gets them.
        cut: the region of the matrix.
        factory: makes them.
    """

    owner: nn.Module
    cut: MatrixCut
    factory: ParameterFactory

    def add(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        *,
        outputs: Along | None = None,
        inputs: Along | None = None,
        other_dtypes: tuple[torch.dtype, ...] = (),
    ) -> None:
        """One tensor of the checkpoint.

        Args:
            name: as the checkpoint calls it, after the matrix's own name.
            shape: of the whole tensor.
            dtype: that it must have; any float type is cast to fp32, bf16 or fp16.
            outputs: which of its axes follows the outputs; None: it is needed for all of them.
            inputs: the same for the inputs.
            other_dtypes: types that are taken as they are, too.
        """
        shard = None
        for matrix_axis, along in enumerate((outputs, inputs)):
            if along is not None:
                shard = shard or self.cut.region(along, matrix_axis)
        info = ParameterInfo(whole_shape=shape, shard=shard, other_dtypes=other_dtypes)
        self.owner.register_parameter(name, self.factory.empty(info, dtype))


def parameter_of(owner: nn.Module, name: str) -> WeightParameter:
    """A registered tensor."""
    parameter = getattr(owner, name)
    assert isinstance(parameter, WeightParameter), "registered by the same format"
    return parameter
