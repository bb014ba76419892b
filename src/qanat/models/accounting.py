"""Strict accounting: which tensor fills which parameter, and the one clear message for whatever does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from qanat.core.errors import CheckpointError
from qanat.models.checkpoint import Checkpoint
from qanat.models.decoder import LoadedModel
from qanat.models.safetensors_file import DTYPES, FLOAT_DTYPES
from qanat.models.weights import DropRule, Part, Target
from qanat.quant.parameter import Shard, WeightParameter

_EMBEDDING = "model.embed_tokens.weight"
_TIED_HEAD = DropRule("tied head", r"^lm_head\.weight$", "equal to the embedding it is tied to")


@dataclass
class LoadPlan:
    """Which tensors fill which parameter, by name; a whole parameter has the single part None."""

    sources: dict[str, dict[Part | None, str]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def make_plan(
    model: LoadedModel,
    parameters: Mapping[str, WeightParameter],
    checkpoint: Checkpoint,
    *,
    is_head_known: bool = False,
) -> LoadPlan:
    """Assigns every tensor, or says which one cannot be.

    Args:
        model: without values.
        parameters: of it, by name.
        checkpoint: the opened files.
        is_head_known: a tied head was compared with the embedding at an earlier start, and need not be read again.
    """
    plan = LoadPlan()
    for name, file in checkpoint.owner.items():
        target = _target_of(name, model, parameters)
        if isinstance(target, DropRule):
            plan.dropped[target.name] += 1
            continue
        if target == Target("lm_head.weight") and model.config.tie_word_embeddings:
            if not is_head_known:
                _check_tied_head(name, model, _embedding_shard(parameters), checkpoint)
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


def _target_of(
    name: str, model: LoadedModel, parameters: Mapping[str, WeightParameter]
) -> Target | DropRule | None:
    """By the family's rules; but a matrix that keeps its own name, as each quantised expert's does, is not stacked."""
    target = model.weight_map.resolve(name)
    if isinstance(target, Target) and target.part is not None:
        own = model.weight_map.own_name(name)
        if own in parameters:
            return Target(own)
    return target


def _check_tensor(name: str, target: Target, parameter: WeightParameter, checkpoint: Checkpoint) -> None:
    """Refuses a wrong shape, an expert that does not exist, and a type that must not be read as the parameter's."""
    file = checkpoint.owner[name]
    entry = file.entries[name]
    if entry.dtype not in (allowed := _allowed_dtypes(parameter)):
        wanted = f"one of {', '.join(allowed)}" if len(allowed) > 1 else allowed[0]
        raise CheckpointError(f"tensor {name!r} in {file.path} has type {entry.dtype}, expected {wanted}")
    try:
        wanted = whole_shape(parameter, target.part)
    except IndexError:
        raise CheckpointError(
            f"tensor {name!r} in {file.path} belongs to an expert that config.json does not have "
            f"(num_experts is {parameter.shape[0]})"
        ) from None
    if entry.shape != wanted:
        raise CheckpointError(
            f"tensor {name!r} in {file.path} has shape {list(entry.shape)}, expected {list(wanted)}"
        )


def _allowed_dtypes(parameter: WeightParameter) -> list[str]:
    """Any float for a float, the very type for all others: integers must never be read as if they were weights."""
    kept = {parameter.dtype, *parameter.info.other_dtypes}
    if parameter.dtype in FLOAT_DTYPES.values():
        kept |= set(FLOAT_DTYPES.values())
    return [name for name, dtype in DTYPES.items() if dtype in kept]


def _check_tied_head(name: str, model: LoadedModel, shard: Shard | None, checkpoint: Checkpoint) -> None:
    """A tied checkpoint may repeat the embedding as its head, but bring no other; each rank looks at its rows."""
    head, _ = checkpoint.tensor(name, shard)
    embedding = next((n for n in checkpoint.owner if _targets(model, n, _EMBEDDING)), None)
    if embedding is None or not torch.equal(head, checkpoint.tensor(embedding, shard)[0]):
        raise CheckpointError(
            f"tensor {name!r} in {checkpoint.owner[name].path} differs from the embedding, although config.json "
            "sets tie_word_embeddings; set it to false if the checkpoint has a head of its own"
        )


def _embedding_shard(parameters: Mapping[str, WeightParameter]) -> Shard | None:
    embedding = parameters.get(_EMBEDDING)
    return embedding.info.shard if embedding is not None else None


def _targets(model: LoadedModel, name: str, parameter: str) -> bool:
    return model.weight_map.resolve(name) == Target(parameter)


def check_complete(
    model: LoadedModel, parameters: Mapping[str, WeightParameter], plan: LoadPlan, checkpoint: Checkpoint
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
            missing += [(parts[p], list(whole_shape(parameter, p))) for p in parts if p not in given]
        else:
            missing.append((own, list(whole_shape(parameter, None))))
    if missing:
        own, shape = missing[0]
        name = model.weight_map.name_in_checkpoint(own, checkpoint.owner)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        folder = checkpoint.files[0].path.parent
        raise CheckpointError(f"{folder} lacks tensor {name!r} of shape {shape}{more}, needed by config.json")


def whole_shape(parameter: WeightParameter, part: Part | None) -> tuple[int, ...]:
    """Of the parameter, or of a part of it, as a checkpoint has it; IndexError for an expert too many."""
    whole = torch.empty(parameter.info.whole_shape, device="meta")
    return tuple(part.of(whole).shape if part is not None else whole.shape)
