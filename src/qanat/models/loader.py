"""Fills a model from a checkpoint, with strict accounting both ways.

Every tensor is used once or dropped by a named rule; every parameter is filled exactly once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.models.checkpoint import Checkpoint, open_checkpoint, refuse_quantised
from qanat.models.decoder import CausalLM
from qanat.models.registry import build_model
from qanat.models.safetensors_file import FLOAT_DTYPES
from qanat.models.weights import DropRule, Part, Target
from qanat.platforms.groups import ParallelGroup
from qanat.quant.parameter import Shard, WeightParameter

Progress = Callable[[int, int], None]
"""Called with (parameters filled, parameters in all)."""

_EMBEDDING = "model.embed_tokens.weight"
_TIED_HEAD = DropRule("tied head", r"^lm_head\.weight$", "equal to the embedding it is tied to")


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

    def __str__(self) -> str:
        """One line for the log."""
        left_out = ", ".join(f"{count} {rule}" for rule, count in sorted(self.dropped.items())) or "none"
        return (
            f"{self.num_tensors} tensors in {self.num_files} files: {self.num_used} used, dropped: {left_out}; "
            f"{self.num_parameters} parameters, {self.mapped_bytes / 2**20:.1f} MiB mapped, "
            f"{self.copied_bytes / 2**20:.1f} MiB copied, {self.duration_s:.2f} s"
        )


@dataclass
class _Plan:
    """Which tensors fill which parameter, by name; a whole parameter has the single part None."""

    sources: dict[str, dict[Part | None, str]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def load_model(
    path: str | Path,
    config: ModelConfig,
    dtype: torch.dtype,
    device: str | torch.device,
    progress: Progress | None = None,
    group: ParallelGroup | None = None,
) -> tuple[CausalLM, LoadReport]:
    """Builds the model, or one rank's share of it, and fills it from the folder's safetensors files.

    A parameter that needs neither stacking nor a cast is the mapped file itself, so nothing is read before it
    is used. A rank touches only the regions that it keeps.

    Args:
        path: folder of the checkpoint.
        config: its shape.
        dtype: type to compute in; weights of another float type are cast.
        device: where the weights shall lie.
        progress: told after each parameter.
        group: the ranks that share the model; None for one.

    Raises:
        CheckpointError: quantised weights, pickles, a missing or broken file, or a tensor that is missing,
            unexpected, doubled, of the wrong shape or of no float type.
    """
    begin = time.monotonic()
    folder = Path(path)
    refuse_quantised(folder, config)
    checkpoint = open_checkpoint(folder)
    model = build_model(config, dtype, "meta", group)
    parameters = dict(model.named_parameters())
    plan = _make_plan(model, parameters, checkpoint)
    _check_complete(model, parameters, plan, checkpoint)
    mapped_bytes = copied_bytes = 0
    for done, (name, parameter) in enumerate(parameters.items(), start=1):
        tensor, is_mapped = _fill(parameter, plan.sources[name], checkpoint, torch.device(device))
        replace_parameter(model, name, tensor)
        if is_mapped:
            mapped_bytes += tensor.nbytes
        else:
            copied_bytes += tensor.nbytes
        if progress is not None:
            progress(done, len(parameters))
    model.finalize()
    return model, LoadReport(
        num_files=len(checkpoint.files),
        num_tensors=len(checkpoint.owner),
        num_used=len(checkpoint.owner) - plan.dropped.total(),
        dropped=dict(plan.dropped),
        num_parameters=len(parameters),
        mapped_bytes=mapped_bytes,
        copied_bytes=copied_bytes,
        read_bytes=sum(file.read_bytes for file in checkpoint.files),
        duration_s=time.monotonic() - begin,
    )


def replace_parameter(model: CausalLM, name: str, tensor: Tensor) -> None:
    """Puts a tensor in a parameter's place; what is known about the parameter stays."""
    owner_name, _, own_name = name.rpartition(".")
    owner = model.get_submodule(owner_name)
    setattr(owner, own_name, WeightParameter(tensor, getattr(owner, own_name).info))


def _make_plan(model: CausalLM, parameters: Mapping[str, WeightParameter], checkpoint: Checkpoint) -> _Plan:
    """Assigns every tensor, or says which one cannot be."""
    plan = _Plan()
    for name, file in checkpoint.owner.items():
        target = model.weight_map.resolve(name)
        if isinstance(target, DropRule):
            plan.dropped[target.name] += 1
            continue
        if target == Target("lm_head.weight") and model.config.tie_word_embeddings:
            _check_tied_head(name, model, parameters[_EMBEDDING].info.shard, checkpoint)
            plan.dropped[_TIED_HEAD.name] += 1
            continue
        if target is None or target.parameter not in parameters:
            raise CheckpointError(
                f"tensor {name!r} in {file.path} is not part of a {model.config.architecture} with this "
                "config.json, and no rule leaves it out"
            )
        _check_tensor(name, target, parameters[target.parameter], checkpoint)
        parts = plan.sources.setdefault(target.parameter, {})
        rival = parts.get(target.part) or parts.get(None)
        if rival is None and target.part is None:
            rival = next(iter(parts.values()), None)
        if rival is not None:
            raise CheckpointError(
                f"tensors {rival!r} in {checkpoint.owner[rival].path} and {name!r} in {file.path} both fill "
                f"parameter {target.parameter!r}"
            )
        parts[target.part] = name
    return plan


def _check_tensor(name: str, target: Target, parameter: WeightParameter, checkpoint: Checkpoint) -> None:
    """Refuses a wrong shape, an expert that does not exist, and anything that is not a float."""
    file = checkpoint.owner[name]
    entry = file.entries[name]
    if entry.dtype not in FLOAT_DTYPES:
        raise CheckpointError(
            f"tensor {name!r} in {file.path} has type {entry.dtype}, expected one of {', '.join(FLOAT_DTYPES)}"
        )
    try:
        wanted = _whole_shape(parameter, target.part)
    except IndexError:
        raise CheckpointError(
            f"tensor {name!r} in {file.path} belongs to an expert that config.json does not have "
            f"(num_experts is {parameter.shape[0]})"
        ) from None
    if entry.shape != wanted:
        raise CheckpointError(
            f"tensor {name!r} in {file.path} has shape {list(entry.shape)}, expected {list(wanted)}"
        )


def _check_tied_head(name: str, model: CausalLM, shard: Shard | None, checkpoint: Checkpoint) -> None:
    """A tied checkpoint may repeat the embedding as its head, but bring no other; each rank looks at its rows."""
    head, _ = _read_float(name, checkpoint, shard)
    embedding = next((n for n in checkpoint.owner if _targets(model, n, _EMBEDDING)), None)
    if embedding is None or not torch.equal(head, _read_float(embedding, checkpoint, shard)[0]):
        raise CheckpointError(
            f"tensor {name!r} in {checkpoint.owner[name].path} differs from the embedding, although config.json "
            "sets tie_word_embeddings; set it to false if the checkpoint has a head of its own"
        )


def _targets(model: CausalLM, name: str, parameter: str) -> bool:
    return model.weight_map.resolve(name) == Target(parameter)


def _check_complete(
    model: CausalLM, parameters: Mapping[str, WeightParameter], plan: _Plan, checkpoint: Checkpoint
) -> None:
    """Names the first tensor that is missing, as the checkpoint would call it, and how many are."""
    stack = model.weight_map.expert_stack
    missing: list[tuple[str, list[int]]] = []
    for own, parameter in parameters.items():
        given = plan.sources.get(own, {})
        if None in given:
            continue
        parts = stack.parts(own, parameter.shape[0]) if stack is not None and given else {}
        if parts:
            missing += [(parts[p], list(_whole_shape(parameter, p))) for p in parts if p not in given]
        else:
            missing.append((own, list(_whole_shape(parameter, None))))
    if missing:
        own, shape = missing[0]
        name = model.weight_map.name_in_checkpoint(own, checkpoint.owner)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        folder = checkpoint.files[0].path.parent
        raise CheckpointError(f"{folder} lacks tensor {name!r} of shape {shape}{more}, needed by config.json")


def _fill(
    parameter: WeightParameter,
    sources: Mapping[Part | None, str],
    checkpoint: Checkpoint,
    device: torch.device,
) -> tuple[Tensor, bool]:
    """(the parameter's values, True if they are mapped memory)."""
    shard = parameter.info.shard
    if None in sources:
        tensor, is_mapped = _read_float(sources[None], checkpoint, shard)
        moved = tensor.to(device=device, dtype=parameter.dtype)
        return moved, is_mapped and moved is tensor
    stacked = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
    for part, name in sources.items():
        if part is not None:
            own = shard.of_section(part.position) if shard is not None else None
            part.of(stacked).copy_(_read_float(name, checkpoint, own)[0])
    return stacked, False


def _whole_shape(parameter: WeightParameter, part: Part | None) -> tuple[int, ...]:
    """Of the parameter, or of a part of it, as a checkpoint has it; IndexError for an expert too many."""
    whole = torch.empty(parameter.info.whole_shape, device="meta")
    return tuple(part.of(whole).shape if part is not None else whole.shape)


def _read_float(name: str, checkpoint: Checkpoint, shard: Shard | None) -> tuple[Tensor, bool]:
    return checkpoint.owner[name].tensor(name, shard)
