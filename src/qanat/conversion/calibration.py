"""Measures what every matrix is multiplied with: the real model over some texts, one layer after the other.

Only one layer's weights are in memory at a time, whatever the model's size; each is read once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from qanat.config.model_config import ModelConfig
from qanat.conversion.measure import NUM_PROBES, Activations
from qanat.conversion.outline import inputs_of_experts
from qanat.conversion.text_batches import TextBatch, batches_of
from qanat.core.errors import ConversionError
from qanat.core.whole_file import whole_file
from qanat.kernels import ops
from qanat.layers.mlp import Experts
from qanat.models.accounting import check_complete, make_plan
from qanat.models.checkpoint import open_checkpoint
from qanat.models.decoder import CausalLM
from qanat.models.loader import Filling
from qanat.models.registry import build_model
from qanat.models.units import LoadUnit, load_units
from qanat.quant.base import ExpertSizes
from qanat.worker.cache_tensors import DTYPES

HEAD = "lm_head"
TABLE = "model.embed_tokens"


class Collector:
    """Sums of squares of the inputs of each matrix, and some of the inputs themselves."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._rows: dict[str, Tensor] = {}

    def add(self, inputs: str, rows: Tensor, *, keeps_rows: bool = True) -> None:
        """Some rows [n, in] that a matrix was multiplied with."""
        if not len(rows):
            return
        sums = rows.float().square().sum(0)
        if inputs not in self._sums:
            self._sums[inputs], self._counts[inputs] = torch.zeros_like(sums), 0
            step = max(len(rows) // NUM_PROBES, 1)
            self._rows[inputs] = rows[::step][:NUM_PROBES].float() if keeps_rows else rows[:0].float()
        self._sums[inputs] += sums
        self._counts[inputs] += len(rows)

    def activations(self) -> dict[str, Activations]:
        """What was measured, by `Piece.inputs`; experts that no token went to are missing."""
        return {
            name: Activations(sums / self._counts[name], self._rows[name])
            for name, sums in self._sums.items()
        }


@torch.no_grad()
def calibrate(
    folder: Path,
    config: ModelConfig,
    sequences: Sequence[Sequence[int]],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Activations]:
    """Runs the model over token ids and measures.

    Args:
        folder: of the plain checkpoint.
        config: its shape.
        sequences: token ids of each text.
        advance: called with (layers done, layers in all).

    Raises:
        CheckpointError: see `qanat.models.loader.load_model`.
    """
    checkpoint = open_checkpoint(folder)
    model = build_model(config, DTYPES[config.dtype], "meta")
    units = list(load_units(model))
    parameters = {name: each for unit in units for name, each in unit.parameters.items()}
    plan = make_plan(model, parameters, checkpoint)
    check_complete(model, parameters, plan, checkpoint)
    run = _Run(model, Filling(model, plan, checkpoint, torch.device("cpu")), units)
    batches = batches_of(sequences, model)
    run.embed(batches)
    for index in range(config.num_hidden_layers):
        advance(index, config.num_hidden_layers)
        run.layer(index, batches)
    run.head(batches)
    return run.collector.activations()


class _Run:
    """The forward pass, layer by layer."""

    def __init__(self, model: CausalLM, filling: Filling, units: Sequence[LoadUnit]) -> None:
        self.collector = Collector()
        self._model, self._filling, self._units = model, filling, units

    def embed(self, batches: Sequence[TextBatch]) -> None:
        units = self._load(TABLE)
        for batch in batches:
            batch.x = self._model.model.embed_tokens(batch.token_ids)
        self._release(units)

    def layer(self, index: int, batches: Sequence[TextBatch]) -> None:
        name = f"model.layers.{index}"
        units = self._load(f"{name}.")
        layer = self._model.model.layers[index]
        for own, module in layer.named_modules():
            self._watch(f"{name}.{own}", module)
        for batch in batches:
            batch.x, batch.residual = layer(batch.x, batch.residual, batch.context)
        self._release(units)
        self._model.model.layers[index] = nn.Identity()

    def head(self, batches: Sequence[TextBatch]) -> None:
        self._load("model.norm")
        for batch in batches:
            self.collector.add(HEAD, self._model.model.norm.add(batch.x, batch.residual)[0])

    def _load(self, start: str) -> list[LoadUnit]:
        """Fills the layers whose names begin so; experts stay unpacked, to be asked for what is inside them."""
        units = [unit for unit in self._units if f"{unit.name}.".startswith(start)]
        for unit in units:
            for name, parameter in unit.parameters.items():
                self._filling.fill(name, parameter)
            if not isinstance(getattr(unit.module, "sizes", None), ExpertSizes):
                unit.finalize()
        return units

    def _release(self, units: Sequence[LoadUnit]) -> None:
        for unit in units:
            self._filling.release(unit)

    def _watch(self, name: str, module: nn.Module) -> None:
        """Has the module's inputs measured."""
        if isinstance(module, Experts):
            module.register_forward_pre_hook(lambda each, given: self._add_experts(name, each, *given[:2]))
        elif hasattr(module, "method"):
            module.register_forward_pre_hook(lambda each, given: self.collector.add(name, given[0]))

    def _add_experts(self, name: str, experts: nn.Module, x: Tensor, expert_ids: Tensor) -> None:
        gate_up: Tensor = experts.gate_up_proj  # type: ignore[assignment]
        for expert in range(len(gate_up)):
            rows = x[(expert_ids == expert).any(1)]
            if not len(rows):
                continue
            self.collector.add(inputs_of_experts(name, expert, is_down=False), rows, keeps_rows=False)
            inner = ops.swiglu(*ops.linear(rows, gate_up[expert]).chunk(2, -1))
            self.collector.add(inputs_of_experts(name, expert, is_down=True), inner, keeps_rows=False)


def save(activations: Mapping[str, Activations], path: Path) -> None:
    """Writes what was measured, so that an interrupted conversion goes on with the same; see `load`.

    Raises:
        OSError: it cannot be written.
    """
    arrays = {}
    for name, each in activations.items():
        arrays[f"{name}/mean_square"], arrays[f"{name}/rows"] = each.mean_square.numpy(), each.rows.numpy()
    with whole_file(path) as file:
        np.savez(file, **arrays)


def load(path: Path) -> dict[str, Activations]:
    """Reads what `save` wrote.

    Raises:
        ConversionError: the file is damaged.
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            names = [key.removesuffix("/rows") for key in arrays.files if key.endswith("/rows")]
            return {
                name: Activations(
                    torch.from_numpy(arrays[f"{name}/mean_square"]), torch.from_numpy(arrays[f"{name}/rows"])
                )
                for name in names
            }
    except (BadZipFile, zlib.error, ValueError, TypeError, KeyError, EOFError, AttributeError):
        raise ConversionError(f"{path} is damaged") from None  # numpy would advise to load it unsafely
