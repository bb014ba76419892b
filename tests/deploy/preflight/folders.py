"""Model folders written byte by byte, without a library."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

SIZES = {"I8": 1, "U8": 1, "F8_E4M3": 1, "BF16": 2, "F32": 4}
TEXT_CONFIG: dict[str, Any] = {
    "num_hidden_layers": 40,
    "hidden_size": 2048,
    "num_key_value_heads": 2,
    "num_attention_heads": 16,
    "num_experts": 256,
    "max_position_embeddings": 262144,
}
"""Sizes of Qwen3.5-35B-A3B and Qwen3.6-35B-A3B."""
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "text_config": TEXT_CONFIG,
}


def shard(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> bytes:
    """A safetensors file of zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size_bytes = SIZES[dtype]
        for size in shape:
            size_bytes *= size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size_bytes]}
        end += size_bytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def write_model(
    folder: Path,
    shards: dict[str, dict[str, tuple[str, tuple[int, ...]]]],
    *,
    description: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    stem: str = "model",
) -> Path:
    """A whole model folder with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    places = {name: file for file, tensors in shards.items() for name in tensors}
    for file, tensors in shards.items():
        (folder / file).write_bytes(shard(tensors))
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index))
    if description is not None:
        (folder / "quant_model_description.json").write_text(json.dumps(description))
    return folder


def quantised(folder: Path) -> Path:
    """A small folder in W8A8_DYNAMIC with a drafter."""
    layer = "model.language_model.layers.3.self_attn.q_proj."
    first: dict[str, tuple[str, tuple[int, ...]]] = {
        layer + "weight": ("I8", (4, 8)),
        layer + "weight_scale": ("F32", (4, 1)),
        layer + "weight_offset": ("F32", (4, 1)),
    }
    second: dict[str, tuple[str, tuple[int, ...]]] = {
        "lm_head.weight": ("BF16", (4, 8)),
        "mtp.fc.weight": ("BF16", (2, 2)),
    }
    kinds = {name: "W8A8_DYNAMIC" for name in first} | {name: "FLOAT" for name in second}
    description = {"version": "1.0.0", "model_quant_type": "W8A8_DYNAMIC", "group_size": "0", **kinds}
    names = (
        "quant_model_weights-00001-of-00002.safetensors",
        "quant_model_weights-00002-of-00002.safetensors",
    )
    shards = {names[0]: first, names[1]: second}
    return write_model(folder, shards, description=description, stem="quant_model_weights")
