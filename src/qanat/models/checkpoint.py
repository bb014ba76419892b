"""A model folder's weight files: found, opened, and checked against their index."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from qanat.config.json_section import read_json
from qanat.core.errors import CheckpointError
from qanat.models.safetensors_file import SafetensorsFile
from qanat.quant.parameter import Shard, TensorHeader

INDEX_NAMES = ("model.safetensors.index.json", "quant_model_weights.safetensors.index.json")
"""Files that say which tensor lies in which file, as Hugging Face's and as Ascend's tools name them."""

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")
_PICKLES = ("*.bin", "*.pt", "*.pth")


@dataclass(frozen=True)
class Checkpoint:
    """All tensors of a folder.

    Attributes:
        files: the opened files, in order of name.
        owner: tensor name -> the file that holds it.
    """

    files: tuple[SafetensorsFile, ...]
    owner: dict[str, SafetensorsFile]

    def tensor(self, name: str, shard: Shard | None = None) -> tuple[Tensor, bool]:
        """See `SafetensorsFile.tensor`."""
        return self.owner[name].tensor(name, shard)

    def header(self, name: str) -> TensorHeader:
        """Type and shape of a tensor."""
        return self.owner[name].entries[name]


def open_checkpoint(folder: Path) -> Checkpoint:
    """Opens every weight file of a folder.

    Raises:
        CheckpointError: no safetensors, a missing shard, a broken file, a tensor that is in two files, or one
            that the index promises and its file lacks.
    """
    promised: dict[str, str] = {}
    index = next((folder / name for name in INDEX_NAMES if (folder / name).is_file()), None)
    if index is not None:
        promised = _read_index(index)
        names = sorted(set(promised.values()))
    else:
        names = _list_files(folder)
    files = [SafetensorsFile(folder / name) for name in names]
    owner: dict[str, SafetensorsFile] = {}
    for file in files:
        for tensor in file.entries:
            if tensor in owner:
                raise CheckpointError(f"tensor {tensor!r} is in both {owner[tensor].path} and {file.path}")
            owner[tensor] = file
    for tensor, name in promised.items():
        if index is not None and (tensor not in owner or owner[tensor].path.name != name):
            raise CheckpointError(
                f"{index.name} promises tensor {tensor!r} in {name}, which does not hold it"
            )
    return Checkpoint(tuple(files), owner)


def _read_index(path: Path) -> dict[str, str]:
    folder = path.parent
    mapping = read_json(path).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise CheckpointError(f"{path} has no weight_map")
    for tensor, name in mapping.items():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{path}: tensor {tensor!r} must lie in a .safetensors file of this folder")
    missing = [name for name in sorted(set(mapping.values())) if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {', '.join(missing)}, listed in {path.name}")
    return {str(tensor): str(name) for tensor, name in mapping.items()}


def _list_files(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        if pickles:
            raise CheckpointError(
                f"{folder} has only pickled weights ({pickles[0]}), which can run code when they are read; "
                "convert them to safetensors"
            )
        raise CheckpointError(f"{folder} has no *.safetensors files")
    for name in names:
        shard = _SHARD.match(name)
        for number in range(1, int(shard["count"]) + 1) if shard else ():
            wanted = f"{shard['stem']}-{number:05d}-of-{shard['count']}.safetensors" if shard else name
            if wanted not in names:
                raise CheckpointError(f"{folder} lacks {wanted}, a shard of the same checkpoint as {name}")
    return names
