"""Weight files: which pieces go into which, and the bytes of a file's header, all known before anything is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from qanat.conversion.outline import OutputTensor, Piece

STEM = "quant_model_weights"
INDEX_NAME = f"{STEM}.safetensors.index.json"
_HEADER_GRANULE = 8


@dataclass(frozen=True)
class ShardPlan:
    """A weight file to be written.

    Attributes:
        name: of the file.
        pieces: whose tensors it holds, in order.
    """

    name: str
    pieces: tuple[Piece, ...]

    @property
    def outputs(self) -> list[OutputTensor]:
        """The tensors, in the order of their data."""
        return [output for piece in self.pieces for output in piece.outputs()]

    @property
    def source_bytes(self) -> int:
        """Read for it."""
        return sum(piece.source_bytes for piece in self.pieces)

    @property
    def size_bytes(self) -> int:
        """Of the whole file."""
        return len(self.header()) + sum(output.size_bytes for output in self.outputs)

    def header(self) -> bytes:
        """What stands before the data: the length of the JSON text, little-endian, and the text."""
        entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
        position = 0
        for output in self.outputs:
            stop = position + output.size_bytes
            entries[output.name] = {
                "dtype": output.dtype,
                "shape": list(output.shape),
                "data_offsets": [position, stop],
            }
            position = stop
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _HEADER_GRANULE)
        return len(text).to_bytes(8, "little") + text


def plan_shards(pieces: Sequence[Piece], max_bytes: int) -> list[ShardPlan]:
    """Cuts the pieces into files of at most so many bytes of data; a piece that is larger gets a file of its own."""
    groups: list[list[Piece]] = [[]]
    filled = 0
    for piece in pieces:
        size_bytes = sum(output.size_bytes for output in piece.outputs())
        if groups[-1] and filled + size_bytes > max_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(piece)
        filled += size_bytes
    return [
        ShardPlan(f"{STEM}-{number:05d}-of-{len(groups):05d}.safetensors", tuple(group))
        for number, group in enumerate(groups, 1)
    ]


def index_of(shards: Sequence[ShardPlan]) -> dict[str, object]:
    """The index file's contents: which tensor lies in which file."""
    total = sum(output.size_bytes for shard in shards for output in shard.outputs)
    weight_map = {output.name: shard.name for shard in shards for output in shard.outputs}
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def description_of(shards: Sequence[ShardPlan], kind: str, group_size: int) -> dict[str, object]:
    """The description file's contents: the kind of every tensor.

    Args:
        shards: all of them.
        kind: the highest kind of the model.
        group_size: inputs that share a scale in 4-bit matrices; 0 where there are none.
    """
    kinds = {output.name: output.kind for shard in shards for output in shard.outputs}
    about: dict[str, object] = {"version": "1.0.0", "model_quant_type": kind, "group_size": group_size}
    return about | kinds
