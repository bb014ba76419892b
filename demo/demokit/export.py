"""Files of the model folder from trained weights: weights in bf16, configuration in the form of real checkpoints."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from .model import Shape, Weights

MAX_POSITIONS = 262_144


def stored(weights: Weights) -> Weights:
    """Weights in the dtypes of a Qwen3.5 checkpoint: bf16, but decay rates and the delta net's norm in fp32."""
    return {
        name: value.detach().to(torch.float32 if _is_kept_fp32(name) else torch.bfloat16).contiguous().clone()
        for name, value in weights.items()
    }


def rounded(weights: Weights) -> Weights:
    """The stored weights as fp32 again: what a loader sees, for scoring."""
    return {name: value.float() for name, value in stored(weights).items()}


def _is_kept_fp32(name: str) -> bool:
    return name.endswith(("A_log", "linear_attn.norm.weight"))


def text_config(shape: Shape, end_of_text: int) -> dict[str, Any]:
    """The nested text_config."""
    frequencies = shape.rotary_dim // 2
    third = frequencies // 3
    kinds = [
        "full_attention" if shape.is_full_attention(i) else "linear_attention"
        for i in range(shape.num_layers)
    ]
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": end_of_text,
        "full_attention_interval": shape.full_attention_interval,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "layer_types": kinds,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": shape.delta_head_dim,
        "linear_num_key_heads": shape.num_delta_heads,
        "linear_num_value_heads": shape.num_delta_heads,
        "linear_value_head_dim": shape.delta_head_dim,
        "max_position_embeddings": MAX_POSITIONS,
        "mlp_only_layers": [],
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": shape.expert_size,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": shape.num_heads,
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.num_experts_per_token,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_kv_heads,
        "rms_norm_eps": 1e-06,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": shape.shared_size,
        "use_cache": True,
        "vocab_size": shape.vocab_size,
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [
                frequencies - third - (frequencies - third) // 2,
                (frequencies - third) // 2,
                third,
            ],
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
        },
    }


def model_config(shape: Shape, tokenizer: Tokenizer) -> dict[str, Any]:
    """config.json of the text part; there is no vision tower."""
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "dtype": "bfloat16",
        "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
        "model_type": "qwen3_5_moe",
        "text_config": text_config(shape, tokenizer.token_to_id("<|endoftext|>")),
        "tie_word_embeddings": False,
        "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
        "vision_end_token_id": tokenizer.token_to_id("<|vision_end|>"),
        "vision_start_token_id": tokenizer.token_to_id("<|vision_start|>"),
    }


def generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """generation_config.json: both end tokens, greedy by default because the tasks have one right answer."""
    end_of_turn, end_of_text = (tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>"))
    return {"do_sample": False, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}


def write_model(folder: Path, shape: Shape, weights: Weights, tokenizer: Tokenizer) -> None:
    """Write weights and configuration into `folder`, beside the tokenizer and the template that are there."""
    if tokenizer.get_vocab_size() > shape.vocab_size:
        raise ValueError(
            f"tokenizer has {tokenizer.get_vocab_size()} entries, the model only {shape.vocab_size} rows"
        )
    save_file(stored(weights), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it readable by the owner alone
    for name, content in (
        ("config.json", model_config(shape, tokenizer)),
        ("generation_config.json", generation_config(tokenizer)),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
