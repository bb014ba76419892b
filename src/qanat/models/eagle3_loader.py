"""An EAGLE-3 draft model from its folder, with the same strict accounting as the model's own weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch

from qanat.config.eagle3 import Eagle3Config
from qanat.models.accounting import check_complete, make_plan
from qanat.models.checkpoint import open_checkpoint
from qanat.models.decoder import CausalLM
from qanat.models.dummy import fill_dummy
from qanat.models.eagle3 import EMBEDDING, HEAD, Eagle3Model
from qanat.models.loader import Filling
from qanat.models.temporaries import temporaries_given_back
from qanat.models.units import load_units
from qanat.quant.parameter import ParameterFactory


def load_eagle3(
    config: Eagle3Config, target: CausalLM, dtype: torch.dtype, device: str | torch.device
) -> Eagle3Model:
    """Builds the draft model and fills it from its safetensors files.

    Args:
        config: its shape.
        target: the model that it drafts for; lends embedding and head where the files have none.
        dtype: type to compute in; weights of another float type are cast.
        device: where the weights shall lie.

    Raises:
        CheckpointError: a missing or broken file, or a tensor that is missing, unexpected, of the wrong shape or
            type, or with impossible values.
    """
    checkpoint = open_checkpoint(Path(config.folder))
    model = _build(config, dtype, checkpoint.owner)
    units = list(load_units(model))
    parameters = {name: parameter for unit in units for name, parameter in unit.parameters.items()}
    plan = make_plan(model, parameters, checkpoint)
    check_complete(model, parameters, plan, checkpoint)
    filling = Filling(model, plan, checkpoint, torch.device(device))
    with temporaries_given_back():
        for unit in units:
            for _ in filling.load(unit, frozenset()):
                pass
    model.draft_for(target)
    return model


def dummy_eagle3(
    config: Eagle3Config, target: CausalLM, dtype: torch.dtype, seed: int, device: str | torch.device
) -> Eagle3Model:
    """The same with random weights; see `qanat.models.dummy`."""
    model = _build(config, dtype, (HEAD,))
    fill_dummy(model, seed, device)
    model.draft_for(target)
    return model


def build_eagle3(config: Eagle3Config, dtype: torch.dtype) -> Eagle3Model:
    """The draft model without values, to see how large it is.

    Raises:
        CheckpointError: a file is missing or broken.
    """
    folder = Path(config.folder)
    has_weights = any(folder.glob("*.safetensors"))
    return _build(config, dtype, open_checkpoint(folder).owner if has_weights else (HEAD,))


def _build(config: Eagle3Config, dtype: torch.dtype, names: Collection[str]) -> Eagle3Model:
    """With the parts that a checkpoint of these tensors has, and those without which it cannot draft."""
    is_apart = config.layer.hidden_size != config.target_hidden_size
    model = Eagle3Model(
        config,
        ParameterFactory(dtype, torch.device("meta")),
        has_embedding=is_apart or EMBEDDING in names,
        has_head=is_apart or config.is_reduced or HEAD in names,
    )
    return model.eval()
