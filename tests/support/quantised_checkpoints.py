"""Whole checkpoints in every quantised format, made from a plain one, with a plain one that means the same."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support import quantised_matrices as matrices
from tests.support.quantised_matrices import Writer

MATRIX = re.compile(r"^(.*(?:_proj|in_proj_qkv|in_proj_z|out_proj|lm_head))\.weight$")
"""Matrices that tools quantise; routers, gates of one row and the small projections of the delta net stay."""

LEFT_OUT = re.compile(r"visual|mtp|in_proj_a|in_proj_b|shared_expert_gate")


@dataclass(frozen=True)
class Format:
    """A way to write a checkpoint.

    Attributes:
        name: shown by pytest.
        write: makes the tensors of a matrix.
        kind: Ascend's name of it; empty for formats that config.json describes.
        config: `quantization_config` of config.json.
        exact: the matrices that are read mean exactly what was written; otherwise they are rounded anew.
        description: other keys of Ascend's description file.
        stored: "int8" or "int4", in which most matrices end.
        group: matrices whose inputs do not divide into such groups are left as they are.
    """

    name: str
    write: Writer
    kind: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = True
    description: Mapping[str, Any] = field(default_factory=dict)
    stored: str = "int8"
    group: int = 1

    def __str__(self) -> str:
        return self.name

    @property
    def quantization(self) -> str:
        """As the flag names it."""
        return "ascend" if self.kind else str(self.config["quant_method"])


def _compressed(form: str, weights: dict[str, Any], activations: dict[str, Any] | None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    ignore = ["re:.*lm_head", "re:.*mlp.gate$"]
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ignore,
    }


def _weights(bits: int, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy, **more}


_GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 16, "sym": True, "desc_act": False}
_DYNAMIC = {"num_bits": 8, "dynamic": True, "strategy": "token"}
_STATIC = {"num_bits": 8, "dynamic": False, "strategy": "tensor", "symmetric": False}


def _shuffled(weight: Tensor) -> matrices.Written:
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(1))
    return matrices.gptq(weight, order=order)


FORMATS = [
    Format("ascend-W8A8", matrices.ascend_static, "W8A8"),
    Format("ascend-W8A8-fp16", matrices.ascend_static_fp16, "W8A8"),
    Format("ascend-W8A8_DYNAMIC", matrices.ascend_dynamic, "W8A8_DYNAMIC"),
    Format("ascend-W8A8_MIX", matrices.ascend_mix, "W8A8_MIX"),
    Format("ascend-W8A16", matrices.ascend_dynamic, "W8A16"),
    Format("ascend-W8A16-asymmetric", matrices.ascend_asymmetric, "W8A16", exact=False),
    Format(
        "ascend-W4A8_DYNAMIC",
        matrices.ascend_int4,
        "W4A8_DYNAMIC",
        description={"version": "1.0.0"},
        stored="int4",
    ),
    Format(
        "ascend-W4A8_DYNAMIC-16_parts",
        matrices.ascend_int4_wide_bias,
        "W4A8_DYNAMIC",
        description={"version": "1.0.0"},
        stored="int4",
    ),
    Format(
        "ascend-W4A8_DYNAMIC-groups",
        matrices.ascend_int4_groups,
        "W4A8_DYNAMIC",
        description={"group_size": 16},
        stored="int4",
        group=16,
    ),
    Format("ascend-W4A4_DYNAMIC", matrices.ascend_int4_unpacked, "W4A4_DYNAMIC", stored="int4"),
    Format("ascend-WFP8AFP8_DYNAMIC", matrices.ascend_fp8, "WFP8AFP8_DYNAMIC", exact=False),
    Format("ascend-W8A8_MXFP8", matrices.mx_fp8, "W8A8_MXFP8", exact=False),
    Format("ascend-W4A8_MXFP", matrices.mx_fp4, "W4A8_MXFP", exact=False),
    Format("ascend-W4A4_MXFP4", matrices.mx_fp4, "W4A4_MXFP4", exact=False),
    Format(
        "compressed-int8",
        matrices.compressed_int8,
        config=_compressed("int-quantized", _weights(8, "channel"), _DYNAMIC),
    ),
    Format(
        "compressed-int8-static",
        matrices.compressed_int8_static,
        config=_compressed("int-quantized", _weights(8, "channel"), _STATIC),
    ),
    Format(
        "compressed-W4A16",
        partial(matrices.compressed_packed, group=16),
        config=_compressed("pack-quantized", _weights(4, "group", group_size=16), None),
        stored="int4",
        group=16,
    ),
    Format(
        "compressed-W4A16-asymmetric",
        partial(matrices.compressed_packed, group=16, symmetric=False),
        config=_compressed(
            "pack-quantized", {**_weights(4, "group", group_size=16), "symmetric": False}, None
        ),
        exact=False,
        group=16,
    ),
    Format(
        "compressed-W8A16",
        partial(matrices.compressed_packed, bits=8),
        config=_compressed("pack-quantized", _weights(8, "channel"), None),
    ),
    Format(
        "compressed-FP8",
        lambda weight: _without(matrices.ascend_fp8(weight), "weight_offset"),
        config=_compressed("float-quantized", _weights(8, "channel", type="float"), _DYNAMIC),
        exact=False,
    ),
    Format(
        "fp8-blocks",
        matrices.fp8_blocks,
        config={"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32]},
        exact=False,
    ),
    Format(
        "fp8-tensor",
        matrices.fp8_tensor,
        config={"quant_method": "fp8", "activation_scheme": "static"},
        exact=False,
    ),
    Format("gptq-int4", matrices.gptq, config=_GPTQ, stored="int4", group=16),
    Format(
        "gptq-int4-asymmetric",
        partial(matrices.gptq, symmetric=False),
        config={**_GPTQ, "sym": False},
        exact=False,
        group=16,
    ),
    Format("gptq-int4-desc_act", _shuffled, config={**_GPTQ, "desc_act": True}, exact=False, group=16),
    Format("gptq-int8", partial(matrices.gptq, bits=8), config={**_GPTQ, "bits": 8}, exact=False, group=16),
]


def _without(written: matrices.Written, name: str) -> matrices.Written:
    tensors = {own: tensor for own, tensor in written.tensors.items() if own != name}
    return matrices.Written(tensors, written.meaning)


def default_choice(matrix: str) -> bool:
    """All that tools usually quantise, the head aside."""
    return LEFT_OUT.search(matrix) is None and not matrix.endswith("lm_head")


def quantise_folder(
    plain: Path,
    folder: Path,
    wanted: Format | Mapping[str, Format],
    choose: Callable[[str], bool] = default_choice,
) -> dict[str, Tensor]:
    """Writes a quantised copy of a checkpoint.

    Args:
        plain: its folder.
        folder: where the copy goes.
        wanted: the format; or formats by a part of a matrix's name, the first that is in it.
        choose: which matrices are quantised.

    Returns:
        What the quantised matrices mean, by their name in the checkpoint with ".weight".
    """
    shutil.copytree(plain, folder, dirs_exist_ok=True)
    path = folder / "model.safetensors"
    tensors, meanings, kinds = {}, {}, {}
    formats = {"": wanted} if isinstance(wanted, Format) else dict(wanted)
    for name, tensor in load_file(path).items():
        match = MATRIX.match(name)
        own = next((each for part, each in formats.items() if part in name), None)
        if match is None or own is None or not choose(match[1]) or tensor.shape[1] % own.group:
            tensors[name], kinds[name] = tensor, "FLOAT"
            continue
        written = own.write(tensor.float())
        meanings[name] = written.meaning
        for suffix, made in written.tensors.items():
            tensors[f"{match[1]}.{suffix}"] = made
            kinds[f"{match[1]}.{suffix}"] = own.kind
    path.unlink()
    first = next(iter(formats.values()))
    if first.kind:
        description = {"model_quant_type": first.kind, **first.description, **kinds}
        (folder / "quant_model_description.json").write_text(json.dumps(description))
        path = folder / "quant_model_weights.safetensors"
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": first.config}))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"}
    )
    return meanings


def write_meaning(plain: Path, folder: Path, meanings: Mapping[str, Tensor]) -> None:
    """Writes a plain copy of a checkpoint in which some matrices have these values."""
    shutil.copytree(plain, folder, dirs_exist_ok=True)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors.update({name: meaning.to(tensors[name].dtype).contiguous() for name, meaning in meanings.items()})
    save_file(tensors, path, metadata={"format": "pt"})
