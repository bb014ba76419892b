"""Fills a model from a checkpoint, with strict accounting both ways.

Every tensor is used once or dropped by a named rule; every parameter is filled exactly once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.config.quantization import checkpoint_quantization
from qanat.core.cache_folder import CacheFolder
from qanat.models.accounting import LoadPlan, check_complete, make_plan
from qanat.models.checkpoint import Checkpoint, open_checkpoint
from qanat.models.decoder import CausalLM, LoadedModel
from qanat.models.packed_cache import MappedWeights, open_cache
from qanat.models.packed_key import PackedIdentity
from qanat.models.quantised import open_scheme
from qanat.models.registry import build_model
from qanat.models.temporaries import temporaries_given_back
from qanat.models.units import LoadUnit, load_units
from qanat.models.weights import Part
from qanat.platforms.groups import ParallelGroup, SingleGroup
from qanat.quant.parameter import WeightParameter

Progress = Callable[[int, int], None]
"""Called with (parameters filled, parameters in all)."""


@dataclass(frozen=True)
class LoadReport:
    """What loading did.

    Attributes:
        num_files, num_tensors: read from the folder.
        num_used: tensors that went into parameters.
        dropped: name of the rule -> tensors it left out.
        num_parameters: parameters filled.
        mapped_bytes: parameters that are the mapped file itself.
        copied_bytes: parameters that were stacked, cut, cast, or moved to another device.
        read_bytes: regions of the files that the parameters were made from; headers are not counted.
        duration_s: wall-clock time.
        kept: packed weights that were mapped from the disk in place of parameters; None for none.
    """

    num_files: int
    num_tensors: int
    num_used: int
    dropped: Mapping[str, int]
    num_parameters: int
    mapped_bytes: int
    copied_bytes: int
    read_bytes: int
    duration_s: float
    kept: MappedWeights | None = None

    def __str__(self) -> str:
        """One line for the log."""
        left_out = ", ".join(f"{count} {rule}" for rule, count in sorted(self.dropped.items())) or "none"
        kept = f", {self.kept.size_bytes / 2**20:.1f} MiB mapped packed" if self.kept is not None else ""
        return (
            f"{self.num_tensors} tensors in {self.num_files} files: {self.num_used} used, dropped: {left_out}; "
            f"{self.num_parameters} parameters, {self.mapped_bytes / 2**20:.1f} MiB mapped, "
            f"{self.copied_bytes / 2**20:.1f} MiB copied{kept}, {self.duration_s:.2f} s"
        )


def load_model(
    path: str | Path,
    config: ModelConfig,
    dtype: torch.dtype,
    device: str | torch.device,
    progress: Progress | None = None,
    group: ParallelGroup | None = None,
    quantization: str | None = None,
    cache: CacheFolder | None = None,
) -> tuple[CausalLM, LoadReport]:
    """Builds the model, or one rank's share of it, and fills it from the folder's safetensors files.

    A parameter that needs neither stacking nor a cast is the mapped file itself, so nothing is read before it
    is used. A rank touches only the regions that it keeps. A layer is finished before the next is begun, and what was
    read of the files for it is given back: beside the final weights, memory is needed for one layer.

    Args:
        path: folder of the checkpoint.
        config: its shape.
        dtype: type to compute in; weights of another float type are cast.
        device: where the weights shall lie.
        progress: told after each parameter.
        group: the ranks that share the model; None for one.
        quantization: as `ResolvedConfig.quantization` has it; None recognises the checkpoint's own.
        cache: where packed weights are kept between starts; None for nowhere.

    Raises:
        CheckpointError: quantised in a way that is not known, pickles, a missing or broken file, or a tensor that is
            missing, unexpected, doubled, of the wrong shape or type, or with impossible values.
    """
    begin = time.monotonic()
    folder = Path(path)
    if quantization is None:
        quantization = checkpoint_quantization(folder, config)
    checkpoint = open_checkpoint(folder)
    scheme = open_scheme(quantization, folder, config, checkpoint)
    model = build_model(config, dtype, "meta", group, scheme)
    units = list(load_units(model))
    parameters = {name: parameter for unit in units for name, parameter in unit.parameters.items()}
    bare = dataclasses.replace(config, draft_layer=None, tapped_layers=())  # of other weights, and no weights
    identity = PackedIdentity(folder, checkpoint, bare, dtype, quantization, group or SingleGroup())
    kept = open_cache(cache, identity) if cache is not None else None
    mapped = kept.open(units) if kept is not None else None
    plan = make_plan(model, parameters, checkpoint, is_head_known=mapped is not None)
    check_complete(model, parameters, plan, checkpoint)
    filling = Filling(model, plan, checkpoint, torch.device(device))
    with temporaries_given_back():
        for unit in units:
            for num_done in filling.load(unit, mapped.restore(unit) if mapped is not None else frozenset()):
                if progress is not None:
                    progress(num_done, len(parameters))
    if kept is not None:
        kept.keep(units)
    return model, filling.report(begin, len(parameters), mapped)


class Filling:
    """Fills one parameter after the other.

    Args:
        model: on the meta device.
        plan: what fills its parameters.
        checkpoint: the opened files.
        device: where the weights shall lie.
    """

    def __init__(
        self, model: LoadedModel, plan: LoadPlan, checkpoint: Checkpoint, device: torch.device
    ) -> None:
        self._model, self._plan, self._checkpoint, self._device = model, plan, checkpoint, device
        self.num_done = self.mapped_bytes = self.copied_bytes = 0

    def load(self, unit: LoadUnit, restored: frozenset[str]) -> Iterator[int]:
        """Fills a layer's parameters and finishes it; those that it was given packed are left out.

        Yields the number of parameters of the model that are done.
        """
        for name, parameter in unit.parameters.items():
            if name not in restored:
                self.fill(name, parameter)
            self.num_done += 1
            yield self.num_done
        if not restored:
            self._finish(unit)

    def fill(self, name: str, parameter: WeightParameter) -> None:
        """Reads the parameter's values."""
        tensor, is_mapped = self._read(parameter, self._plan.sources[name])
        replace_parameter(self._model, name, tensor, self._source_of(name))
        if is_mapped:
            self.mapped_bytes += tensor.nbytes
        else:
            self.copied_bytes += tensor.nbytes

    def _finish(self, unit: LoadUnit) -> None:
        """Finishes a layer, and gives back what was read of the files for it."""
        unit.finalize()
        if unit.module is not None:
            self.release(unit)

    def release(self, unit: LoadUnit) -> None:
        """Gives back what was read of the files for a layer; what is mapped is read again where it is used again."""
        for name in unit.parameters:
            for tensor in self._plan.sources[name].values():
                self._checkpoint.owner[tensor].release(tensor)

    def report(self, begin: float, num_parameters: int, kept: MappedWeights | None) -> LoadReport:
        """What was done since `begin`, in seconds of the monotonic clock."""
        files, num_tensors = self._checkpoint.files, len(self._checkpoint.owner)
        return LoadReport(
            num_files=len(files),
            num_tensors=num_tensors,
            num_used=num_tensors - self._plan.dropped.total(),
            dropped=dict(self._plan.dropped),
            num_parameters=num_parameters,
            mapped_bytes=self.mapped_bytes,
            copied_bytes=self.copied_bytes,
            read_bytes=sum(file.read_bytes for file in files),
            duration_s=time.monotonic() - begin,
            kept=kept,
        )

    def _read(self, parameter: WeightParameter, sources: Mapping[Part | None, str]) -> tuple[Tensor, bool]:
        """(the parameter's values, True if they are mapped memory)."""
        shard = parameter.info.shard
        if None in sources:
            tensor, is_mapped = self._checkpoint.tensor(sources[None], shard)
            dtype = tensor.dtype if tensor.dtype in parameter.info.other_dtypes else parameter.dtype
            moved = parameter.info.laid_out(tensor.to(device=self._device, dtype=dtype))
            return moved, is_mapped and moved is tensor
        stacked = torch.empty(parameter.shape, dtype=parameter.dtype, device=self._device)
        for part, name in sources.items():
            if part is not None:
                own = shard.of_section(part.position) if shard is not None else None
                part.of(stacked).copy_(self._checkpoint.tensor(name, own)[0])
                self._checkpoint.owner[name].release(name)
        return stacked, False

    def _source_of(self, name: str) -> str:
        tensor = next(iter(self._plan.sources[name].values()))
        return f"tensor {tensor!r} in {self._checkpoint.owner[tensor].path}"


def replace_parameter(model: LoadedModel, name: str, tensor: Tensor, source: str = "") -> None:
    """Puts a tensor in a parameter's place; what is known about the parameter stays."""
    owner_name, _, own_name = name.rpartition(".")
    owner = model.get_submodule(owner_name)
    setattr(owner, own_name, WeightParameter(tensor, getattr(owner, own_name).info, source))
