"""Which layers of a model are quantised, and how: asked once, after the model is built and before it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn

from qanat.core.decision import Decision
from qanat.quant.base import ExpertsMethod, LinearMethod
from qanat.quant.parameter import ParameterFactory


class Scheme(Protocol):
    """A way to quantise a model: a checkpoint's own, or one that is made while loading.

    Attributes:
        name: as `--quantization` calls it.
    """

    name: str

    def method_for(self, module_name: str, module: nn.Module) -> LinearMethod | ExpertsMethod | None:
        """How this layer is stored; None for layers that stay as they are.

        Args:
            module_name: the layer's name in the model, such as "model.layers.0.self_attn.q_proj".
            module: a layer with a `method` and its `sizes`; its parameters have no values yet.

        Raises:
            CheckpointError: the checkpoint describes the layer in a way that is not known.
        """
        ...

    def decisions(self) -> Sequence[Decision]:
        """What is computed otherwise than the checkpoint has it, once for each kind; complete after the last layer."""
        ...


def apply_scheme(model: nn.Module, scheme: Scheme, factory: ParameterFactory) -> None:
    """Gives every layer that the scheme quantises its method, with new parameters in place of the old ones.

    Args:
        model: built with `factory`, without values.
        scheme: asked about each layer that has a `method`, in the model's order.
        factory: makes the new parameters.

    Raises:
        CheckpointError: see `Scheme.method_for`.
    """
    for name, module in list(model.named_modules()):
        if not hasattr(module, "method"):
            continue
        method = scheme.method_for(name, module)
        if method is None:
            continue
        for own in [own for own, _ in module.named_parameters(recurse=False)]:
            delattr(module, own)
        module.method = method  # type: ignore[assignment]  # nn.Module types every attribute as a tensor or a module
        method.create(module, module.sizes, factory)  # type: ignore[arg-type]  # sizes and method go together
