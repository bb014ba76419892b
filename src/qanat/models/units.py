"""A model in the pieces in which it is loaded: each can be finished before the next begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from qanat.models.decoder import LoadedModel
from qanat.quant.parameter import WeightParameter


@dataclass
class LoadUnit:
    """Parameters that are loaded together.

    Attributes:
        name: of the module.
        module: the layer whose method they belong to; None for parameters without a method, such as norms.
        parameters: by their name in the model.
    """

    name: str
    module: nn.Module | None
    parameters: dict[str, WeightParameter] = field(default_factory=dict)

    def finalize(self) -> None:
        """Called once all values are in: lets the method pack what it wants to."""
        if self.module is not None:
            self.module.method.finalize(self.module)  # type: ignore[union-attr, operator]  # see `load_units`


def load_units(model: LoadedModel) -> Iterator[LoadUnit]:
    """All parameters of the model, each once, in the model's order; a layer with a `method` is one unit."""
    owner = ""
    for name, module in model.named_modules():
        if owner and name.startswith(owner):
            continue  # a part of a layer whose method has all of it
        has_method = hasattr(module, "method")
        owner = f"{name}." if has_method else ""
        prefix = f"{name}." if name else ""
        named = module.named_parameters(recurse=has_method, remove_duplicate=False)
        unit = LoadUnit(name, module if has_method else None)
        unit.parameters = {prefix + own: parameter for own, parameter in named}  # type: ignore[misc]  # all are
        if unit.parameters:
            yield unit
