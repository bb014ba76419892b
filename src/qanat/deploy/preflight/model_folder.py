"""A model folder as it lies on disk: configuration, index, shards, description of its quantisation."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qanat.deploy.preflight.safetensors import BrokenFileError, TensorInfo, is_lfs_pointer, read_header

INDEX_SUFFIX = ".safetensors.index.json"
DESCRIPTION_PATTERN = "quant_model_description*.json"
TOKENIZER_CHOICES = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("tokenizer.model",))
"""One of these sets makes a tokenizer."""
MAX_JSON_BYTES = 2**28


@dataclass
class ModelFolder:
    """What a folder holds.

    Attributes:
        path: of the folder.
        names: of its files.
        config: config.json, None if there is none or it is unreadable.
        text_config: the part of it that is about text.
        index: tensor -> file; None without an index.
        tensors: tensor -> what its file says of it; of whole files only.
        files_of: tensor -> file that holds it.
        broken: file -> what is wrong with it.
        description: tensor -> type; None if the folder has no description.
    """

    path: Path
    names: tuple[str, ...] = ()
    config: dict[str, Any] | None = None
    text_config: dict[str, Any] = field(default_factory=dict)
    index_name: str = ""
    index: dict[str, str] | None = None
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    files_of: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    description_name: str = ""
    description: dict[str, Any] | None = None

    @property
    def shards(self) -> tuple[str, ...]:
        """Files of weights that are read: those of the index, else all."""
        there = tuple(name for name in self.names if name.endswith(".safetensors"))
        return tuple(sorted(set(self.index.values()))) if self.index is not None else there

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer."""
        return any(all(name in self.names for name in choice) for choice in TOKENIZER_CHOICES)


def read_folder(path: str) -> ModelFolder | None:
    """Reads a folder; None if there is none. Headers of weights are read, their data is not."""
    root = Path(path).expanduser()
    try:
        names = tuple(sorted(each.name for each in root.iterdir() if each.is_file() or each.is_symlink()))
    except OSError:
        return None
    folder = ModelFolder(root, names)
    for name in names:
        if is_lfs_pointer(root / name):
            folder.broken[name] = "is a pointer of Git LFS"
    config = _read_json(folder, "config.json")
    if config is not None:
        folder.config = config
        text = config.get("text_config")
        folder.text_config = text if isinstance(text, dict) else config
    _read_description(folder)
    _read_index(folder)
    for shard in folder.shards:
        try:
            tensors = read_header(root / shard)
        except BrokenFileError as error:
            folder.broken[shard] = str(error) if shard in names else "is missing"
            continue
        for tensor, info in tensors.items():
            folder.tensors[tensor] = info
            folder.files_of[tensor] = shard
    return folder


def fingerprint(path: str) -> dict[str, str]:
    """What tells two copies of a model apart without reading the weights: part -> hash or sizes; empty if none.

    `index` is the hash of the index, or of names and shapes without one; `config` and `quantisation` those of their
    files; `shards` that of names and sizes.
    """
    folder = read_folder(path)
    if folder is None:
        return {}
    parts = {"config": _hash_of_file(folder.path / "config.json")}
    if folder.description_name:
        parts["quantisation"] = _hash_of_file(folder.path / folder.description_name)
    if folder.index_name:
        parts["index"] = _hash_of_file(folder.path / folder.index_name)
    else:
        rows = [f"{name} {info.dtype} {info.shape}" for name, info in sorted(folder.tensors.items())]
        parts["index"] = _hash("\n".join(rows).encode())
    sizes = [f"{name} {_size(folder.path / name)}" for name in folder.shards]
    parts["shards"] = _hash("\n".join(sizes).encode())
    return parts


def _read_index(folder: ModelFolder) -> None:
    found = [name for name in folder.names if name.endswith(INDEX_SUFFIX)]
    # A folder with both has the float index left over from before it was quantised.
    found.sort(key=lambda name: (not name.startswith("quant") if folder.description else False, name))
    if not found:
        return
    folder.index_name = found[0]
    raw = _read_json(folder, found[0])
    places = raw.get("weight_map") if raw is not None else None
    if isinstance(places, dict):
        folder.index = {str(name): str(file) for name, file in places.items()}
    else:
        folder.broken.setdefault(found[0], "has no weight_map")


def _read_description(folder: ModelFolder) -> None:
    found = sorted(each.name for each in folder.path.glob(DESCRIPTION_PATTERN))
    if found:
        folder.description_name = found[0]
        folder.description = _read_json(folder, found[0])


def _read_json(folder: ModelFolder, name: str) -> dict[str, Any] | None:
    """An object of a file; None, and a note in `broken`, if it is none. Nothing is noted for a missing file."""
    path = folder.path / name
    if name not in folder.names or name in folder.broken:
        return None
    try:
        if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError("a device, or too long")
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        folder.broken[name] = "is no JSON"
        return None
    if not isinstance(raw, dict):
        folder.broken[name] = "is no JSON object"
        return None
    return raw


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _hash_of_file(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            return "no file"
        return _hash(path.read_bytes()) if path.stat().st_size <= MAX_JSON_BYTES else "too long"
    except OSError:
        return "missing"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
