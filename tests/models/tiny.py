"""Random tiny checkpoints of every family, written by transformers, with every norm, gate and decay active."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from tests.models.reference import Transformers

VOCAB_SIZE = 320
NUM_EXPERTS = 8

_COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "eos_token_id": 5,
}
_DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}
_EXPERTS = {"num_experts": NUM_EXPERTS, "num_experts_per_tok": 3, "moe_intermediate_size": 48}
_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
}


@dataclass(frozen=True)
class Family:
    """One kind of checkpoint.

    Attributes:
        name: shown by pytest.
        build: makes the transformers model.
        tolerance: allowed difference of fp32 logits, in parts of their range.
        rewrite: changes the saved tensors, to get layouts that transformers reads but does not write.
    """

    name: str
    build: Callable[[], Any]
    tolerance: float
    rewrite: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict

    def __str__(self) -> str:
        return self.name

    @property
    def is_moe(self) -> bool:
        return "moe" in self.name


def _qwen3(tied: bool) -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**_COMMON, tie_word_embeddings=tied))


def _qwen3_moe(**extra: Any) -> Any:
    config = transformers.Qwen3MoeConfig(**_COMMON, **_EXPERTS, **extra)
    return transformers.Qwen3MoeForCausalLM(config)


def _qwen3_5(tied: bool) -> Any:
    config = transformers.Qwen3_5TextConfig(**_COMMON, **_DELTA_NET, tie_word_embeddings=tied)
    return transformers.Qwen3_5ForCausalLM(config)


def _qwen3_5_moe() -> Any:
    return transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(**_moe_text()))


def _moe_text() -> dict[str, Any]:
    text = {**_COMMON, **_DELTA_NET, **_EXPERTS, "shared_expert_intermediate_size": 40}
    text.pop("intermediate_size")
    return text


def _qwen3_5_vision(tied: bool) -> Any:
    config = transformers.Qwen3_5Config(
        text_config={**_COMMON, **_DELTA_NET, "tie_word_embeddings": tied},
        vision_config=_VISION,
        tie_word_embeddings=tied,
    )
    return transformers.Qwen3_5ForConditionalGeneration(config)


def _qwen3_5_moe_vision() -> Any:
    config = transformers.Qwen3_5MoeConfig(text_config=_moe_text(), vision_config=_VISION)
    return transformers.Qwen3_5MoeForConditionalGeneration(config)


def stack_experts(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """One tensor per expert and matrix, as transformers writes them, becomes one per layer and kind."""
    out = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for stem in {name.split(".experts.")[0] for name in tensors if ".experts." in name}:

        def matrices(kind: str, stem: str = stem) -> list[Tensor]:
            return [tensors[f"{stem}.experts.{expert}.{kind}.weight"] for expert in range(NUM_EXPERTS)]

        gate_up = [torch.cat(pair) for pair in zip(matrices("gate_proj"), matrices("up_proj"), strict=True)]
        out[f"{stem}.experts.gate_up_proj"] = torch.stack(gate_up)
        out[f"{stem}.experts.down_proj"] = torch.stack(matrices("down_proj"))
    return out


def add_mtp(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Adds multi-token-prediction tensors, which transformers does not write."""
    return {**tensors, "mtp.fc.weight": torch.zeros(64, 128), "mtp.norm.weight": torch.zeros(64)}


FAMILIES = [
    Family("qwen3-tied", lambda: _qwen3(True), 1e-5),
    Family("qwen3-untied", lambda: _qwen3(False), 1e-5),
    Family("qwen3_moe-per_expert", lambda: _qwen3_moe(norm_topk_prob=True), 1e-4),
    Family("qwen3_moe-fused", lambda: _qwen3_moe(norm_topk_prob=True), 1e-4, stack_experts),
    Family(
        "qwen3_moe-some_dense_layers",
        lambda: _qwen3_moe(norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[3]),
        1e-4,
    ),
    Family("qwen3_5-tied", lambda: _qwen3_5(True), 1e-5),
    Family("qwen3_5-untied", lambda: _qwen3_5(False), 1e-5),
    Family("qwen3_5-vision_tied", lambda: _qwen3_5_vision(True), 1e-5, add_mtp),
    Family("qwen3_5_moe-fused", _qwen3_5_moe, 1e-4, stack_experts),
    Family("qwen3_5_moe-vision_per_expert", _qwen3_5_moe_vision, 1e-4, add_mtp),
]


def redraw(model: torch.nn.Module, seed: int) -> None:
    """Gives every parameter values under which it matters: norms off one, decays of all sizes, open gates."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith(("A_log", "dt_bias")):
                # Decays from a few tokens to a few hundred: the state matters, and is not read at its noise floor.
                parameter.copy_(noise - 2.0)
            elif parameter.dim() == 1:
                parameter.add_(0.3 * noise.to(parameter.dtype))
            elif "embed_tokens" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)


def write_checkpoint(family: Family, folder: Path, dtype: torch.dtype, seed: int = 0) -> Any:
    """Saves a checkpoint of the family and returns transformers' model, read back from the saved files.

    The layout is changed after transformers has read it, so that both sides have the same values.
    """
    torch.manual_seed(seed)
    model = family.build()
    redraw(model, seed)
    model.to(dtype).save_pretrained(folder)
    read_back = type(model).from_pretrained(folder, dtype=dtype).eval()
    path = folder / "model.safetensors"
    save_file(family.rewrite(load_file(path)), path, metadata={"format": "pt"})
    return read_back


def edit_config(folder: Path, **changes: Any) -> None:
    """Changes top-level keys of the folder's config.json; None removes one."""
    path = folder / "config.json"
    raw = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))


def load_tiny(family: Family, folder: Path, dtype: torch.dtype) -> tuple[Transformers, CausalLM]:
    """The same new checkpoint in transformers and in Qanat."""
    theirs = Transformers(write_checkpoint(family, folder, dtype))
    ours, _ = load_model(folder, ModelConfig.from_folder(folder), dtype, "cpu")
    return theirs, ours
