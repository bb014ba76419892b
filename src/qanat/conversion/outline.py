"""What becomes of every tensor of a checkpoint: what is quantised, and the tensors that are written for it.

Names and kinds are those of Ascend checkpoints (msmodelslim): experts one by one, a matrix as `weight` with
`weight_scale` and `weight_offset`; 4-bit ones with `weight_scale_second`, a scale for each group of inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import GROUP_SIZE
from qanat.models.accounting import check_complete, make_plan
from qanat.models.checkpoint import Checkpoint
from qanat.models.decoder import CausalLM
from qanat.models.registry import build_model
from qanat.models.safetensors_file import FLOAT_DTYPES, ITEM_BYTES
from qanat.models.units import load_units
from qanat.models.weights import DropRule, Target
from qanat.quant.own import Precision, precision_of

FLOAT = "FLOAT"


@dataclass(frozen=True)
class OutputTensor:
    """A tensor that is written.

    Attributes:
        name, dtype, shape: as the file's header has them.
        kind: as the description has it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size_bytes(self) -> int:
        """Of its data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Piece:
    """A tensor of the source, or one expert's matrix in it, and what it becomes.

    Attributes:
        source: the tensor's name.
        name: of the tensor that is written; without ".weight" for a quantised matrix.
        dtype, shape: of the piece in the source.
        precision: what it becomes; None copies it.
        layer: of the model that it belongs to; empty for tensors that are copied.
        inputs: names what the matrix is multiplied with, see `inputs_of_experts`; the layer's name outside experts.
        place: (expert, first row) in a stack of experts; None for the whole tensor.
    """

    source: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    precision: Precision | None = None
    layer: str = ""
    inputs: str = ""
    place: tuple[int, int] | None = None

    @property
    def source_bytes(self) -> int:
        """Read for it."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def outputs(self) -> list[OutputTensor]:
        """The tensors that are written for it, in this order."""
        if self.precision is None:
            return [OutputTensor(self.name, self.dtype, self.shape, FLOAT)]
        num_rows, num_inputs = self.shape
        is_packed = self.precision is Precision.INT4
        written = [
            ("weight", "I8", (num_rows // 2 if is_packed else num_rows, num_inputs)),
            ("weight_scale", "F32", (num_rows, 1)),
            ("weight_offset", "F32", (num_rows, 1)),
        ]
        if is_packed:
            written.append(("weight_scale_second", "F32", (num_rows, num_inputs // GROUP_SIZE)))
        kind = self.precision.ascend_kind
        return [OutputTensor(f"{self.name}.{own}", dtype, shape, kind) for own, dtype, shape in written]


def outline(checkpoint: Checkpoint, config: ModelConfig, scheme: str) -> list[Piece]:
    """The pieces of a plain checkpoint, in the order in which its files hold them.

    Args:
        checkpoint: the opened files.
        config: its shape.
        scheme: one of `qanat.config.quantization.AT_LOAD`.

    Raises:
        CheckpointError: a tensor is missing, unexpected, doubled, of the wrong shape or of no float type.
    """
    model = build_model(config, torch.float32, "meta")
    parameters = {name: each for unit in load_units(model) for name, each in unit.parameters.items()}
    check_complete(model, parameters, make_plan(model, parameters, checkpoint), checkpoint)
    pieces: list[Piece] = []
    for file in checkpoint.files:
        for name, entry in sorted(file.entries.items(), key=lambda item: item[1].start):
            if entry.dtype not in FLOAT_DTYPES:
                raise CheckpointError(
                    f"tensor {name!r} in {file.path} has type {entry.dtype}, which is no float"
                )
            target = model.weight_map.resolve(name)
            if target == Target("lm_head.weight") and config.tie_word_embeddings:
                continue
            whole = Piece(name, name, entry.dtype, entry.shape)
            if isinstance(target, Target):
                pieces += _of_model(whole, target, model, scheme)
            elif isinstance(target, DropRule):
                pieces.append(whole)
    return pieces


def _of_model(whole: Piece, target: Target, model: CausalLM, scheme: str) -> Iterator[Piece]:
    """A tensor of the model: copied, quantised, or taken apart into the experts' matrices and quantised."""
    layer = target.parameter.rpartition(".")[0]
    module: nn.Module = model.get_submodule(layer)
    precision = None
    if hasattr(module, "method"):
        precision = precision_of(scheme, layer, *model.get_parameter(target.parameter).shape[-2:])
    if precision is None:
        yield whole
        return
    if len(whole.shape) == 2:
        name, part = whole.name.removesuffix(".weight"), target.part
        inputs = layer if part is None else inputs_of_experts(layer, part.expert, is_down=part.count == 1)
        yield Piece(whole.source, name, whole.dtype, whole.shape, precision, layer, inputs)
        return
    num_experts, num_rows, num_inputs = whole.shape
    owner, _, stack = whole.name.rpartition(".")
    matrices = ("gate_proj", "up_proj") if stack == "gate_up_proj" else ("down_proj",)
    shape = (num_rows // len(matrices), num_inputs)
    for expert in range(num_experts):
        for position, matrix in enumerate(matrices):
            place = (expert, position * shape[0])
            name = f"{owner}.{expert}.{matrix}"
            inputs = inputs_of_experts(layer, expert, is_down=matrix == "down_proj")
            yield Piece(whole.source, name, whole.dtype, shape, precision, layer, inputs, place)


def inputs_of_experts(layer: str, expert: int, *, is_down: bool) -> str:
    """Names the inputs of one expert's matrices: those of gate and up are the same."""
    return f"{layer}.{expert}.{'down' if is_down else 'gate_up'}"
