"""8-bit floats (E4M3) with one scale for each block of a matrix: official FP8, and FP8 of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from qanat.kernels.quantised import Int8Matrix
from qanat.quant.convert import check_no_offsets, check_scales, int8_outline, only_zeros, requantised
from qanat.quant.cut import Along, MatrixCut, Registrar, parameter_of
from qanat.quant.parameter import ParameterFactory

NOTE = (
    "8-bit floats become int8 with one scale an output, which is rounded anew (error at most 1/254 of the output's "
    "largest weight); activations become int8, too"
)


@dataclass(frozen=True)
class Fp8Blocks:
    """`weight` E4M3 [out, in] and a scale for each block of it.

    Formula: weight = value * scale of its block. Blocks at the edges may be smaller.

    Attributes:
        name, note: see `MatrixFormat`.
        block_shape: (outputs, inputs) of a block; 0 stands for all of them.
        scale_name: of the tensor of scales.
        scale_shape: its shape; None: one entry for each block.
        unused: shapes of tensors of one number for activations, by name, which are checked and not used.
        offset_name: of a tensor of zeros [out, 1]; empty if there is none.
    """

    name: str
    note: str = NOTE
    block_shape: tuple[int, int] = (128, 128)
    scale_name: str = "weight_scale_inv"
    scale_shape: tuple[int, ...] | None = None
    unused: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    offset_name: str = ""

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        whole = (cut.num_outputs, cut.num_inputs)
        add("weight", whole, torch.float8_e4m3fn, outputs=Along(0), inputs=Along(1))
        rows, columns = self._block(cut)
        blocks = (-(-whole[0] // rows), -(-whole[1] // columns))
        is_single = self.scale_shape is not None
        along = (None, None) if is_single else (Along(0, rows), Along(1, columns))
        shape = self.scale_shape if self.scale_shape is not None else blocks
        add(self.scale_name, shape, torch.float32, outputs=along[0], inputs=along[1])
        for name, own_shape in self.unused.items():
            add(name, own_shape, torch.float32)
        if self.offset_name:
            add(self.offset_name, (cut.num_outputs, 1), torch.float32, outputs=Along(0))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int8Matrix:
        """Rounded anew to int8."""
        weight, stored = parameter_of(owner, "weight"), parameter_of(owner, self.scale_name)
        for name in self.unused:
            check_scales(parameter_of(owner, name))
        if self.offset_name:
            check_no_offsets(parameter_of(owner, self.offset_name))
        rows, columns = self._block(cut)
        blocks = stored.detach()
        if self.scale_shape is None:
            block_rows, block_columns = cut.positions(0, rows) // rows, cut.positions(1, columns) // columns
        else:
            blocks = blocks.reshape(1, 1)
            block_rows, block_columns = (torch.zeros(size, dtype=torch.long) for size in cut.own_shape)

        def of_zeros() -> Tensor:
            is_zero = weight.detach().float() == 0
            return only_zeros(is_zero, blocks, block_rows, block_columns).view(stored.shape)

        scales = check_scales(stored, of_zeros=of_zeros).view(blocks.shape)

        def dequantised(part: slice) -> Tensor:
            return weight[part].detach().float().mul_(scales[block_rows[part]][:, block_columns])

        return requantised(cut, dequantised, weight)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int8Matrix:
        """See `MatrixFormat.outline`."""
        return int8_outline(cut)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return True

    def _block(self, cut: MatrixCut) -> tuple[int, int]:
        return self.block_shape[0] or cut.num_outputs, self.block_shape[1] or cut.num_inputs
