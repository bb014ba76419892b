"""Parameters that know how they are sharded and what random values suit them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from qanat.kernels.quantised import NUM_SEGMENTS
from qanat.platforms.groups import ParallelGroup, SingleGroup


@dataclass(frozen=True)
class TensorHeader:
    """What a file says about a tensor.

    Attributes:
        dtype: the safetensors format's name of the type, such as "BF16".
        shape: sizes of the axes.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Shard:
    """The region of a whole tensor that one rank keeps.

    Attributes:
        axis: the axis that is cut.
        pieces: (start, length) along that axis, one for each section, ascending.
        starts: where each section starts.
    """

    axis: int
    pieces: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]

    @property
    def length(self) -> int:
        """Of the kept region along the axis."""
        return sum(length for _, length in self.pieces)

    def of(self, whole: Tensor) -> Tensor:
        """The region: a view where it is one piece, otherwise the pieces joined."""
        parts = [whole.narrow(self.axis, start, length) for start, length in self.pieces]
        return parts[0] if len(parts) == 1 else torch.cat(parts, self.axis)

    def of_section(self, section: int) -> Shard:
        """The same of a tensor that is only one section of one entry of a stack, and so has an axis less."""
        start, length = self.pieces[section]
        return Shard(self.axis - 1, ((start - self.starts[section], length),), (0,))


@dataclass(frozen=True)
class ParameterInfo:
    """What is known about a parameter besides its values.

    Attributes:
        shard_axis: axis that tensor parallelism splits; None if every rank holds all of it.
        sections: sizes of the parts along `shard_axis` that are each split on their own (queries, keys, values
            stored one after another); empty for one part.
        num_units: for each section, the heads it is made of; a head is never cut, and where there are more ranks than
            heads, several ranks hold the same one. Empty where any row may be a boundary.
        dummy_mean, dummy_std: normal distribution of random weights that keeps activations finite.
        whole_shape: of the tensor in the checkpoint; set when the parameter is made.
        shard: what this rank keeps of it; None for all of it.
        other_dtypes: types that a file may have in place of the parameter's and that are kept, not cast.
        is_channel_last: in memory the first axis, of channels, lies innermost; the shape is that of the checkpoint.
    """

    shard_axis: int | None = None
    sections: tuple[int, ...] = ()
    num_units: tuple[int, ...] = ()
    dummy_mean: float = 0.0
    dummy_std: float = 0.0
    whole_shape: tuple[int, ...] = field(default=(), compare=False)
    shard: Shard | None = None
    other_dtypes: tuple[torch.dtype, ...] = ()
    is_channel_last: bool = False

    def sharded(self, whole_shape: tuple[int, ...], rank: int, size: int) -> ParameterInfo:
        """The same with what a rank keeps of a tensor of this shape.

        Raises:
            ValueError: a section cannot be split so.
        """
        shard = None
        if self.shard_axis is not None and size > 1:
            sections = self.sections or (whole_shape[self.shard_axis],)
            starts = tuple(itertools.accumulate(sections[:-1], initial=0))
            pieces = tuple(_pieces(sections, self.num_units or sections, starts, rank, size))
            shard = Shard(self.shard_axis, pieces, starts)
        return dataclasses.replace(self, whole_shape=whole_shape, shard=shard)

    def laid_out(self, values: Tensor) -> Tensor:
        """The values as the parameter has them in memory; a copy only where they lie otherwise."""
        if not self.is_channel_last:
            return values
        return values.movedim(0, -1).contiguous().movedim(-1, 0)

    @property
    def own_shape(self) -> tuple[int, ...]:
        """Of what this rank keeps."""
        if self.shard is None:
            return self.whole_shape
        axis = self.shard.axis
        return (*self.whole_shape[:axis], self.shard.length, *self.whole_shape[axis + 1 :])

    @property
    def segment_length(self) -> int:
        """Of a matrix [out, in] whose inputs are cut: of the whole matrix (rule R12). 0 where none is cut or kept."""
        if self.shard is None or self.shard.axis != 1 or len(self.shard.pieces) > 1:
            return 0
        length = -(-self.whole_shape[1] // NUM_SEGMENTS)
        start, size = self.shard.pieces[0]
        return 0 if start % length or size % length else length


def _pieces(
    sections: tuple[int, ...], num_units: tuple[int, ...], starts: tuple[int, ...], rank: int, size: int
) -> Iterator[tuple[int, int]]:
    for section, units, start in zip(sections, num_units, starts, strict=True):
        if units % size and size % units:
            raise ValueError(f"{units} parts cannot be split over {size} ranks")
        num_parts = min(units, size)
        length = section // num_parts
        yield start + length * (rank * num_parts // size), length


class WeightParameter(nn.Parameter):
    """A parameter without gradient that carries its `ParameterInfo`.

    Attributes:
        info: see there.
        source: which tensor of which file filled it, for messages; empty if none did.
    """

    info: ParameterInfo
    source: str

    def __new__(cls, data: Tensor, info: ParameterInfo, source: str = "") -> WeightParameter:
        """Wraps the tensor itself; nothing is copied."""
        parameter: WeightParameter = super().__new__(cls, data, requires_grad=False)
        parameter.info = info
        parameter.source = source
        return parameter


@dataclass(frozen=True)
class ParameterFactory:
    """Makes the empty parameters of a model: one type, one device, one rank's share.

    Attributes:
        dtype: type of the weights; a parameter may ask for another.
        device: where they are made; "meta" costs no memory.
        group: the ranks that share the model; layers exchange tensors over it.
    """

    dtype: torch.dtype
    device: torch.device
    group: ParallelGroup = field(default_factory=SingleGroup)

    def make(
        self, shape: tuple[int, ...], info: ParameterInfo, dtype: torch.dtype | None = None
    ) -> WeightParameter:
        """An uninitialised parameter: this rank's share of a tensor of this shape."""
        return self.empty(info.sharded(shape, self.group.rank, self.group.size), dtype)

    def empty(self, own: ParameterInfo, dtype: torch.dtype | None = None) -> WeightParameter:
        """The same where it is known already which share that is: from `own.whole_shape` and `own.shard`."""
        return WeightParameter(torch.empty(own.own_shape, dtype=dtype or self.dtype, device=self.device), own)


def linear_info(
    num_inputs: int,
    shard_axis: int | None = None,
    sections: tuple[int, ...] = (),
    num_units: tuple[int, ...] = (),
) -> ParameterInfo:
    """Info of a matrix [..., out, in]: random values keep the scale of what passes through."""
    return ParameterInfo(shard_axis, sections, num_units, dummy_std=num_inputs**-0.5)
