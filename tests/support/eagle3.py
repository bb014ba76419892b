"""EAGLE-3 drafts of random tiny targets, in both layouts, and their formulas written once more in plain torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.models.registry import build_model
from qanat.models.units import load_units

HEADS, KV_HEADS, HEAD_DIM, INNER, THETA, EPS = 4, 2, 16, 80, 5000.0, 1e-6
LAYOUTS = ("flat", "speculators")
TARGET: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
"""The `config.json` of a tiny target, but for its vocabulary."""


def config_json(target: ModelConfig, layout: str, draft_vocab_size: int, **changes: Any) -> dict[str, Any]:
    """The `config.json` of a draft; `changes` are top-level keys."""
    layer = {
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "vocab_size": target.vocab_size,
        "max_position_embeddings": 4096,
    }
    top: dict[str, Any] = {"draft_vocab_size": draft_vocab_size}
    if layout == "flat":
        return {**layer, **top, "architectures": ["LlamaForCausalLMEagle3"]} | changes
    verifier = {"name_or_path": "target", "architectures": [target.architecture]}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3", "verifier": verifier},
        "transformer_layer_config": layer,
        **top,
    } | changes


def random_tensors(
    target: ModelConfig, layout: str, draft_vocab_size: int, seed: int = 0
) -> dict[str, Tensor]:
    """All tensors of such a draft, fp32; a reduced vocabulary has every third token or so."""
    generator = torch.Generator().manual_seed(seed)
    width, joined = target.hidden_size, 3 * target.hidden_size

    def matrix(outputs: int, inputs: int) -> Tensor:
        return torch.randn(outputs, inputs, generator=generator) * inputs**-0.5

    def norm() -> Tensor:
        return 1 + 0.3 * torch.randn(width, generator=generator)

    layer = "midlayer" if layout == "flat" else "layers.0"
    tensors = {
        "fc.weight": matrix(width, joined),
        "norm.weight": norm(),
        "lm_head.weight": matrix(draft_vocab_size, width),
        f"{layer}.input_layernorm.weight": norm(),
        f"{layer}.hidden_norm.weight": norm(),
        f"{layer}.post_attention_layernorm.weight": norm(),
        f"{layer}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, 2 * width),
        f"{layer}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, 2 * width),
        f"{layer}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, 2 * width),
        f"{layer}.self_attn.o_proj.weight": matrix(width, HEADS * HEAD_DIM),
        f"{layer}.mlp.gate_proj.weight": matrix(INNER, width),
        f"{layer}.mlp.up_proj.weight": matrix(INNER, width),
        f"{layer}.mlp.down_proj.weight": matrix(width, INNER),
    }
    if draft_vocab_size < target.vocab_size:
        tensors |= vocabulary(target.vocab_size, draft_vocab_size, generator)
    return tensors


def vocabulary(size: int, draft_size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """The maps between a vocabulary and a random part of it."""
    token_ids = torch.randperm(size, generator=generator)[:draft_size].sort().values
    is_there = torch.zeros(size, dtype=torch.bool)
    is_there[token_ids] = True
    return {"d2t": token_ids - torch.arange(draft_size), "t2d": is_there}


def write_draft(
    folder: Path, target: ModelConfig, layout: str = "flat", draft_vocab_size: int = 0, **changes: Any
) -> dict[str, Tensor]:
    """Writes a random draft; all of the vocabulary can be guessed unless it is said how much. Returns its tensors."""
    size = draft_vocab_size or target.vocab_size
    tensors = random_tensors(target, layout, size)
    if changes.get("norm_before_fc"):
        tensors["input_norm.weight"] = torch.linspace(0.5, 1.5, 3 * target.hidden_size)
    save_draft(folder, config_json(target, layout, size, **changes), tensors)
    return tensors


def save_draft(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Writes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")


def echo_tensors(target: ModelConfig, head: Tensor) -> dict[str, Tensor]:
    """A draft, flat, that knows what follows a token by itself: it looks at that token alone and asks a head.

    Right where the target's layers add little to its embeddings. There are as many heads of keys as of queries, so that
    a query meets the key of its own token best, and the row behind is the embedded token.

    Args:
        target: hidden size 64, so that four heads of 16 hold an embedded token.
        head: [V, C] of the target.
    """
    width = target.hidden_size
    tensors = {
        name: torch.zeros_like(tensor) for name, tensor in random_tensors(target, "flat", len(head)).items()
    }
    for name in tensors:
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones(width)
    own = torch.cat((torch.eye(width), torch.zeros(width, width)), 1)
    for kind, scale in (("q", 4.0), ("k", 4.0), ("v", 1.0)):
        tensors[f"midlayer.self_attn.{kind}_proj.weight"] = scale * own
    return tensors | {"midlayer.self_attn.o_proj.weight": torch.eye(width), "lm_head.weight": head.clone()}


def write_echo(folder: Path, target: ModelConfig, head: Tensor) -> None:
    """Writes the draft of `echo_tensors`."""
    config = config_json(target, "flat", target.vocab_size, num_key_value_heads=HEADS)
    save_draft(folder, config, echo_tensors(target, head))


def write_forgetful_target(folder: Path, config: dict[str, Any]) -> Tensor:
    """Writes a random model whose layers add little to its embeddings; returns its head.

    Args:
        folder: made.
        config: its `config.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    model = build_model(ModelConfig.from_dict(config), torch.float32, "meta")
    generator = torch.Generator().manual_seed(4)
    tensors = {}
    for unit in load_units(model):
        for name, parameter in unit.parameters.items():
            info = parameter.info
            is_sum = "o_proj" in name or "down_proj" in name
            values = torch.randn(info.whole_shape, generator=generator) * info.dummy_std + info.dummy_mean
            tensors[name] = values * (0.05 if is_sum else 1.0)
    save_file(tensors, folder / "model.safetensors")
    return tensors["lm_head.weight"]


class Reference:
    """The formulas of the module `qanat.models.eagle3` in fp32, with whole sequences instead of caches.

    Args:
        tensors: of a checkpoint in either layout.
        config: its `config.json`.
        table: [V, C] embeddings of the target.
    """

    def __init__(self, tensors: dict[str, Tensor], config: dict[str, Any], table: Tensor) -> None:
        self.tensors = {name.replace("midlayer.", "layers.0."): one for name, one in tensors.items()}
        self.config, self.table = config, table

    def entries(self, taps: Sequence[Tensor]) -> Tensor:
        """[n, 3 C] rows of the target -> what the layer reads of them."""
        joined = torch.cat(list(taps), -1)
        if self.config.get("norm_before_fc"):
            joined = self._norm(joined, "input_norm")
        return joined @ self.tensors["fc.weight"].T

    def rows(self, tokens: Tensor, hidden: Tensor, num_holes: int = 0) -> Tensor:
        """Rows of tokens [n] at positions `num_holes` on; before them stand zeros in place of keys and values."""
        embedded = self._norm(self.table[tokens], "layers.0.input_layernorm")
        normed = self._norm(hidden, "layers.0.hidden_norm")
        residual = normed if self.config.get("norm_before_residual") else hidden
        x = residual + self._attention(torch.cat((embedded, normed), -1), num_holes)
        y = self._norm(x, "layers.0.post_attention_layernorm")
        gate, up, down = (self.tensors[f"layers.0.mlp.{kind}_proj.weight"] for kind in ("gate", "up", "down"))
        x = x + (torch.nn.functional.silu(y @ gate.T) * (y @ up.T)) @ down.T
        return self._norm(x, "norm") if self.config.get("norm_output") else x

    def scores(self, rows: Tensor) -> Tensor:
        """Of the vocabulary; -inf for what cannot be guessed."""
        normed = rows if self.config.get("norm_output") else self._norm(rows, "norm")
        own = normed @ self.tensors["lm_head.weight"].T
        if "d2t" not in self.tensors:
            return own
        scores = torch.full((len(rows), len(self.table)), -torch.inf)
        for index, offset in enumerate(self.tensors["d2t"].tolist()):
            scores[:, index + offset] = own[:, index]
        return scores

    def drafts(
        self, tokens: Sequence[int], taps: Sequence[Tensor], num_drafts: int, num_holes: int
    ) -> list[int]:
        """Most likely tokens behind `tokens`, from the taps of all but the last."""
        known, hidden = list(tokens[1:]), self.entries(taps)
        found: list[int] = []
        for _ in range(num_drafts):
            row = self.rows(torch.tensor(known), hidden, num_holes)[-1:]
            found.append(int(self.scores(row).argmax()))
            known, hidden = [*known, found[-1]], torch.cat((hidden, row))
        return found

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.tensors[f"{name}.weight"]

    def _attention(self, pairs: Tensor, num_holes: int) -> Tensor:
        heads = {
            kind: (pairs @ self.tensors[f"layers.0.self_attn.{kind}_proj.weight"].T).unflatten(
                -1, (-1, HEAD_DIM)
            )
            for kind in "qkv"
        }
        query, key = (self._turned(heads[kind], num_holes) for kind in "qk")
        value = heads["v"]
        holes = torch.zeros(num_holes, *key.shape[1:])
        key, value = torch.cat((holes, key)), torch.cat((holes, value))
        key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) * HEAD_DIM**-0.5
        num_rows = len(query)
        is_hidden = torch.ones(num_rows, num_holes + num_rows, dtype=torch.bool).triu(1 + num_holes)
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(is_hidden, -torch.inf).softmax(-1), value)
        return mixed.flatten(1) @ self.tensors["layers.0.self_attn.o_proj.weight"].T

    def _turned(self, x: Tensor, start: int) -> Tensor:
        half = HEAD_DIM // 2
        angles = torch.arange(start, start + len(x))[:, None] * THETA ** (-torch.arange(half) / half)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second = x[..., :half], x[..., half:]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
