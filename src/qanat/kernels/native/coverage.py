"""What the native kernels leave to the reference for a given model."""

from __future__ import annotations

from qanat.config.model_config import ModelConfig
from qanat.kernels.native.sequence import LANES, MAX_HEAD_DIM, MAX_TAPS, is_head_covered

COVERED_TYPES = ("float32", "bfloat16")


def uncovered(model: ModelConfig, dtype: str, op_names: list[str]) -> dict[str, str]:
    """Why, by op, the reference runs although the native kernels are built.

    Args:
        model: its shape.
        dtype: of weights and activations.
        op_names: of all ops.
    """
    if dtype not in COVERED_TYPES:
        return {name: f"{dtype} is not covered" for name in op_names}
    found = {}
    sizes = f"heads of {LANES} to {MAX_HEAD_DIM} dimensions in steps of {LANES} are covered"
    if model.num_full_attention_layers and not is_head_covered(model.head_dim):
        for name in ("qk_norm_rotary_store", "paged_attention"):
            found[name] = f"{sizes}, this model has {model.head_dim}"
    gdn = model.gdn
    if gdn is not None and model.num_linear_attention_layers:
        if gdn.conv_kernel_dim > MAX_TAPS:
            found["gated_delta_net"] = f"{MAX_TAPS} taps are covered, this model has {gdn.conv_kernel_dim}"
        if not is_head_covered(gdn.key_head_dim) or gdn.value_head_dim % LANES:
            found["gated_delta_net"] = f"{sizes}, this model has {gdn.key_head_dim} and {gdn.value_head_dim}"
    return found
