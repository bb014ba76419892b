"""Writes one weight file: quantises its pieces row by row and never holds more than some rows and the scales."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
import torch
from torch import Tensor

from qanat.conversion.error_report import MatrixError
from qanat.conversion.measure import Activations, ErrorMeter
from qanat.conversion.outline import Piece
from qanat.conversion.shards import ShardPlan
from qanat.core.errors import CheckpointError
from qanat.core.whole_file import whole_file
from qanat.kernels.quantised import QuantisedMatrix
from qanat.models.checkpoint import Checkpoint
from qanat.quant.own import ROW_PARALLEL, TABLES, Precision

CHUNK_VALUES = 1 << 21
"""Values of a matrix that are worked on at a time."""

Advance = Callable[[int], None]
"""Called with bytes of the source that have been dealt with."""


class WrittenShard(msgspec.Struct, frozen=True):
    """A finished weight file.

    Attributes:
        name: of the file.
        size_bytes: of it.
        sha256: of it, in hexadecimal digits.
        errors: of the matrices in it.
    """

    name: str
    size_bytes: int
    sha256: str
    errors: tuple[MatrixError, ...]


def write_shard(
    shard: ShardPlan,
    folder: Path,
    checkpoint: Checkpoint,
    activations: Mapping[str, Activations],
    num_threads: int,
    advance: Advance,
) -> WrittenShard:
    """Writes a file under another name, and gives it its own once all of it is on the disk.

    Args:
        shard: what to write.
        folder: where.
        checkpoint: the source.
        activations: of matrices by `Piece.inputs`; empty without calibration.
        num_threads: that quantise.
        advance: told after each chunk.

    Raises:
        CheckpointError: a weight is not finite.
        OSError: the file cannot be written.
    """
    digest = hashlib.sha256()
    errors: list[MatrixError] = []
    with whole_file(folder / shard.name) as file:
        out = _Out(file, digest)
        out.write(shard.header())
        for piece in shard.pieces:
            writer = _PieceWriter(piece, checkpoint, out, num_threads, advance)
            if piece.precision is None:
                writer.copy()
            else:
                errors.append(writer.quantise(piece.precision, activations.get(piece.inputs)))
    return WrittenShard(shard.name, (folder / shard.name).stat().st_size, digest.hexdigest(), tuple(errors))


class _Out:
    """A file and the checksum of what goes into it."""

    def __init__(self, file: BinaryIO, digest: hashlib._Hash) -> None:
        self._file, self._digest = file, digest

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)

    def write_tensor(self, tensor: Tensor) -> None:
        if tensor.numel():
            self.write(memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy()))


class _PieceWriter:
    """Writes the tensors of one piece."""

    def __init__(
        self, piece: Piece, checkpoint: Checkpoint, out: _Out, num_threads: int, advance: Advance
    ) -> None:
        self._piece, self._checkpoint, self._out = piece, checkpoint, out
        self._num_threads, self._advance = num_threads, advance
        whole = checkpoint.tensor(piece.source)[0]
        if piece.place is not None:
            expert, first = piece.place
            whole = whole[expert, first : first + piece.shape[0]]
        self._tensor = whole

    def copy(self) -> None:
        """The tensor as it is."""
        rows = (
            self._tensor.reshape(self._tensor.shape[0], -1) if self._tensor.dim() else self._tensor.view(1, 1)
        )
        for start in range(0, len(rows), self._step(rows)):
            part = rows[start : start + self._step(rows)]
            self._out.write_tensor(part)
            self._advance(part.nbytes)
        self._release()

    def quantise(self, precision: Precision, activations: Activations | None) -> MatrixError:
        """The matrix rounded; returns how far it is off."""
        piece = self._piece
        num_rows, num_inputs = piece.shape
        meter = ErrorMeter(
            num_inputs,
            activations,
            is_table=piece.layer.endswith(TABLES[1]),
            is_row_parallel=piece.name.endswith(ROW_PARALLEL),
        )
        importance = None if activations is None else activations.mean_square
        scales: list[Tensor] = []
        step = self._step(self._tensor)
        for start in range(0, num_rows, step):
            part = self._tensor[start : start + step]
            rows = part.float()
            matrix = self._rounded(precision, rows, importance)
            meter.add(rows, matrix)
            self._out.write_tensor(
                packed_rows(matrix.values) if precision is Precision.INT4 else matrix.values
            )
            scales.append(matrix.scales)
            self._advance(part.nbytes)
        self._write_scales(precision, torch.cat(scales))
        self._release()
        return MatrixError(
            piece.name, precision.ascend_kind, (num_rows, num_inputs), meter.weight_error, meter.output_error
        )

    def _rounded(self, precision: Precision, rows: Tensor, importance: Tensor | None) -> QuantisedMatrix:
        try:
            return precision.quantise(rows, importance, self._num_threads)
        except ValueError as error:
            file = self._checkpoint.owner[self._piece.source].path
            raise CheckpointError(
                f"tensor {self._piece.source!r} in {file}: {error}, so it cannot be quantised"
            ) from None

    def _write_scales(self, precision: Precision, scales: Tensor) -> None:
        """Scales of outputs and their offsets, which are zero; 4-bit matrices have theirs for groups instead."""
        is_grouped = precision is Precision.INT4
        self._out.write_tensor(torch.ones(len(scales)) if is_grouped else scales)
        self._out.write_tensor(torch.zeros(len(scales)))
        if is_grouped:
            self._out.write_tensor(scales)

    def _release(self) -> None:
        """Gives the memory back that reading took, once a stack's last piece is done or at once."""
        del self._tensor
        self._checkpoint.owner[self._piece.source].release(self._piece.source)

    @staticmethod
    def _step(rows: Tensor) -> int:
        """Rows at a time; an even number, as two share a byte."""
        return max(CHUNK_VALUES // max(rows.shape[-1], 1) // 2 * 2, 2)


def packed_rows(values: Tensor) -> Tensor:
    """Two rows in a byte: [n, in] of -8..7 -> int8 [n / 2, in], the even row in the low half."""
    return (values[1::2] << 4) | (values[0::2] & 15)
