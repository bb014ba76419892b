"""What a model is: the keys of a Hugging Face `config.json` that inference needs, checked once and frozen.

Accepted are nested files (text part under `text_config`), flat ones, and text-only exports; `rope_parameters`
or the older `rope_theta` and `rope_scaling`; `dtype` or the older `torch_dtype`. An unknown architecture or a
missing key raises `CheckpointError`, with the key and what is supported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.config.json_section import JsonSection, read_json
from qanat.config.model_parts import (
    GatedDeltaNetConfig,
    MoeConfig,
    RopeConfig,
    YarnConfig,
    parse_gated_delta_net,
    parse_moe,
    parse_rope,
)
from qanat.core.errors import CheckpointError

__all__ = [
    "ARCHITECTURES",
    "DTYPES",
    "FULL_ATTENTION",
    "LINEAR_ATTENTION",
    "GatedDeltaNetConfig",
    "ModelConfig",
    "MoeConfig",
    "RopeConfig",
    "YarnConfig",
]

FULL_ATTENTION = "full_attention"
LINEAR_ATTENTION = "linear_attention"

ARCHITECTURES: dict[str, str] = {
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3_5ForCausalLM": "qwen3_5",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen3_5MoeForCausalLM": "qwen3_5_moe",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe",
}
"""Architecture name in `config.json` -> model family. Qwen3.6 uses the Qwen3.5 names."""

DTYPES = ("bfloat16", "float16", "float32")
"""Weight types that the engine computes with."""


@dataclass(frozen=True)
class ModelConfig:
    """One model's shape. Every attribute is final; nothing is filled in later.

    Attributes:
        architecture: name as in the file.
        model_family: "qwen3", "qwen3_moe", "qwen3_5" or "qwen3_5_moe".
        layer_types: "full_attention" or "linear_attention" for each layer.
        intermediate_size: inner width of dense layers; 0 where the family has none.
        attention_output_gate: full attention is multiplied by a sigmoid gate that `q_proj` also computes.
        max_position_embeddings: as in the file; `context_window` also counts YaRN.
        moe: None for dense models.
        gdn: None for models without linear attention.
        num_mtp_layers: multi-token-prediction layers that the checkpoint brings.
        dtype: name of the weight type in the file ("bfloat16" where it says nothing).
        eos_token_ids: stop ids of the config and, from a folder, of `generation_config.json`; ascending.
        quantization_config: the raw section, or None.
        has_vision: the checkpoint also holds a vision tower.
        num_draft_layers: of its multi-token-prediction layers, those that are loaded; settled with the settings.
        draft_layer: shape of the one layer of a draft model that reads this model's rows; settled like the last.
        tapped_layers: layers whose inputs such a draft model reads, as often as it reads them; the number of layers
            stands for the output of the last.
    """

    architecture: str
    model_family: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    rms_norm_eps: float
    tie_word_embeddings: bool
    attention_output_gate: bool
    rope: RopeConfig
    max_position_embeddings: int
    moe: MoeConfig | None
    gdn: GatedDeltaNetConfig | None
    num_mtp_layers: int
    dtype: str
    eos_token_ids: tuple[int, ...]
    quantization_config: Mapping[str, Any] | None
    has_vision: bool
    num_draft_layers: int = 0
    draft_layer: ModelConfig | None = None
    tapped_layers: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Parses the contents of a `config.json`.

        Raises:
            CheckpointError: unknown architecture, missing key, or a value that is not supported.
        """
        return _parse(raw)

    @classmethod
    def from_folder(cls, path: str | Path) -> ModelConfig:
        """Reads `config.json`, and the stop ids of `generation_config.json` where there is one.

        Raises:
            CheckpointError: no such folder or file, invalid JSON, or whatever `from_dict` refuses.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise CheckpointError(
                f"{folder} is not a folder; a model is a folder with config.json and *.safetensors"
            )
        raw = read_json(folder / "config.json")
        generation = folder / "generation_config.json"
        if generation.is_file():
            extra = _token_ids(
                read_json(generation).get("eos_token_id"), "generation_config.json eos_token_id"
            )
            raw = {
                **raw,
                "eos_token_id": sorted({*_token_ids(raw.get("eos_token_id"), "eos_token_id"), *extra}),
            }
        return cls.from_dict(raw)

    @property
    def num_full_attention_layers(self) -> int:
        """Layers that have a KV cache."""
        return self.layer_types.count(FULL_ATTENTION)

    @property
    def cached_draft_layer(self) -> ModelConfig | None:
        """The shape of whatever layer drafts with a cache of its own; None where none does."""
        return self if self.num_draft_layers else self.draft_layer

    @property
    def num_linear_attention_layers(self) -> int:
        """Layers that have conv and recurrent state."""
        return self.layer_types.count(LINEAR_ATTENTION)

    @property
    def is_hybrid(self) -> bool:
        """True if some layers keep recurrent state."""
        return self.num_linear_attention_layers > 0

    @property
    def conv_dim(self) -> int:
        """Channels of a linear layer's convolution; 0 without such layers."""
        return self.gdn.conv_dim if self.gdn is not None else 0

    @property
    def context_window(self) -> int:
        """Longest sequence, in tokens, that the position embedding was made for."""
        scaling = self.rope.scaling
        if scaling is None:
            return self.max_position_embeddings
        return max(
            self.max_position_embeddings,
            math.floor(scaling.factor * scaling.original_max_position_embeddings),
        )

    def is_moe_layer(self, layer_index: int) -> bool:
        """True if the layer's feed-forward part is a mixture of experts."""
        if self.moe is None or layer_index in self.moe.mlp_only_layers:
            return False
        return (layer_index + 1) % self.moe.decoder_sparse_step == 0


def _parse(raw: Mapping[str, Any]) -> ModelConfig:
    top = JsonSection(raw, "config.json")
    text = top.section("text_config") or top
    architecture, family = _architecture(top)
    _refuse_unsupported(text)
    hybrid = family in ("qwen3_5", "qwen3_5_moe")
    moe = parse_moe(text, family) if family.endswith("_moe") else None
    heads, kv_heads = text.integer("num_attention_heads"), text.integer("num_key_value_heads")
    if heads % kv_heads:
        raise CheckpointError(
            f"{text.where}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    layer_types = _layer_types(text, hybrid)
    head_dim = text.integer("head_dim")
    needs_dense = moe is None or moe.decoder_sparse_step > 1 or bool(moe.mlp_only_layers)
    eos = {
        *_token_ids(top.get("eos_token_id"), "eos_token_id"),
        *_token_ids(text.get("eos_token_id"), "eos_token_id"),
    }
    quantization = text.section("quantization_config") or top.section("quantization_config")
    quantization = quantization or top.section("compression_config")
    return ModelConfig(
        architecture=architecture,
        model_family=family,
        vocab_size=text.integer("vocab_size"),
        hidden_size=text.integer("hidden_size"),
        num_hidden_layers=text.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=text.integer("intermediate_size", None if needs_dense else 0, minimum=0),
        layer_types=layer_types,
        rms_norm_eps=text.number("rms_norm_eps", 1e-6),
        # The outer value wins: exporters leave it out of text_config, where its default is another one.
        tie_word_embeddings=top.boolean("tie_word_embeddings", text.boolean("tie_word_embeddings", False)),
        attention_output_gate=hybrid and text.boolean("attn_output_gate", True),
        rope=parse_rope(text, head_dim, 0.25 if hybrid else 1.0),
        max_position_embeddings=text.integer("max_position_embeddings"),
        moe=moe,
        gdn=parse_gated_delta_net(text) if hybrid else None,
        num_mtp_layers=text.integer("mtp_num_hidden_layers", 0, minimum=0),
        dtype=_dtype(top, text),
        eos_token_ids=tuple(sorted(eos)),
        quantization_config=dict(quantization.values) if quantization is not None else None,
        has_vision=top.get("vision_config") is not None,
    )


def _architecture(top: JsonSection) -> tuple[str, str]:
    names = top.get("architectures", [])
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise CheckpointError("config.json has no 'architectures' (list of one name); " + _supported())
    if names[0] not in ARCHITECTURES:
        raise CheckpointError(f"architecture {names[0]!r} in config.json is not supported; " + _supported())
    return names[0], ARCHITECTURES[names[0]]


def _supported() -> str:
    return "supported are " + ", ".join(sorted(ARCHITECTURES))


def _refuse_unsupported(text: JsonSection) -> None:
    """Keys that change the mathematics and that no released model of these families sets."""
    if text.boolean("attention_bias", False):
        raise CheckpointError(f"{text.where}: attention_bias true is not supported")
    if text.boolean("use_sliding_window", False):
        raise CheckpointError(f"{text.where}: use_sliding_window true is not supported")
    if text.get("hidden_act", "silu") != "silu":
        raise CheckpointError(
            f"{text.where}: hidden_act {text.get('hidden_act')!r} is not supported, only 'silu'"
        )


def _layer_types(text: JsonSection, hybrid: bool) -> tuple[str, ...]:
    count = text.integer("num_hidden_layers")
    allowed = (FULL_ATTENTION, LINEAR_ATTENTION) if hybrid else (FULL_ATTENTION,)
    given = text.get("layer_types")
    if given is None:
        interval = text.integer("full_attention_interval", 4) if hybrid else 1
        return tuple(FULL_ATTENTION if (i + 1) % interval == 0 else LINEAR_ATTENTION for i in range(count))
    if not isinstance(given, list | tuple) or len(given) != count:
        raise CheckpointError(f"{text.where}: layer_types must list {count} layers (num_hidden_layers)")
    for kind in given:
        if kind not in allowed:
            raise CheckpointError(
                f"{text.where}: layer type {kind!r} is not supported, only {', '.join(allowed)}"
            )
    return tuple(given)


def _dtype(top: JsonSection, text: JsonSection) -> str:
    for section in (text, top):
        for key in ("dtype", "torch_dtype"):
            name = section.get(key)
            if name is not None:
                name = str(name).removeprefix("torch.")
                if name not in DTYPES:
                    raise CheckpointError(
                        f"{section.where}: {key} {name!r} is not one of {', '.join(DTYPES)}"
                    )
                return name
    return "bfloat16"


def _token_ids(value: object, what: str) -> tuple[int, ...]:
    if value is None:
        return ()
    ids = list(value) if isinstance(value, list | tuple) else [value]
    numbers = tuple(x for x in ids if isinstance(x, int) and not isinstance(x, bool))
    if len(numbers) != len(ids):
        raise CheckpointError(f"{what} must be a token id or a list of them, not {value!r}")
    return numbers
