"""Which packed weights belong to a checkpoint: everything that decides about their bytes, in one digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from qanat import __version__
from qanat.config.model_config import ModelConfig
from qanat.config.quantization import ASCEND_DESCRIPTIONS
from qanat.config.weight_digest import weight_digest
from qanat.models.checkpoint import Checkpoint
from qanat.models.recipe import recipe_digest
from qanat.platforms.groups import ParallelGroup


@dataclass(frozen=True)
class PackedIdentity:
    """What packed weights are made from, and how.

    Attributes:
        folder: of the checkpoint.
        checkpoint: its opened files.
        config: its shape.
        dtype: of unquantised weights.
        quantization: as `ResolvedConfig.quantization` has it.
        group: the ranks that share the model, and which of them this is.
    """

    folder: Path
    checkpoint: Checkpoint
    config: ModelConfig
    dtype: torch.dtype
    quantization: str
    group: ParallelGroup

    def key(self, layout: str) -> str:
        """64 hexadecimal digits.

        Args:
            layout: digest of how the kernels pack, see `qanat.kernels.providers.packed_layout`.

        A file counts by its name, size, time of change, tensor headers and samples of its values: two models whose
        files were given the same times must not have one key. Not all values are read for that.

        Raises:
            OSError: a file is gone or cannot be read.
        """
        digest = hashlib.sha256()
        for part in self._parts(layout):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def label(self) -> str:
        """For people."""
        kind = self.quantization or str(self.dtype).removeprefix("torch.")
        rank = f", rank {self.group.rank} of {self.group.size}" if self.group.size > 1 else ""
        return f"{self.folder.name}, {kind}{rank}"

    def _parts(self, layout: str) -> Iterator[bytes]:
        settings = (
            __version__,
            recipe_digest(),
            layout,
            self.dtype,
            self.quantization,
            self.group.rank,
            self.group.size,
            self.config,
        )
        yield from (repr(value).encode() for value in settings)
        for path in sorted(self.folder.glob(ASCEND_DESCRIPTIONS)):
            yield path.read_bytes()
        yield weight_digest(self.folder).encode()
        for file in self.checkpoint.files:
            status = file.path.stat()
            yield repr((file.path.name, status.st_size, status.st_mtime_ns)).encode()
            yield repr(sorted(file.entries.items())).encode()
