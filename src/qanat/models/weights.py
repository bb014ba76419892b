"""Naming rules: which checkpoint tensor fills which parameter, or which part of one, or is left out and why."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

_PER_EXPERT = re.compile(r"^(?P<owner>.+\.experts)\.(?P<expert>\d+)\.(?P<matrix>[a-z_]+)\.weight$")


@dataclass(frozen=True)
class DropRule:
    """Tensors that are left out on purpose.

    Attributes:
        name: as the load report counts them.
        pattern: regular expression searched in the tensor's name.
        reason: shown to people.
    """

    name: str
    pattern: str
    reason: str


@dataclass(frozen=True)
class Part:
    """A region of a stacked parameter: section `position` of `count` equal ones, in entry `expert`."""

    expert: int
    position: int
    count: int

    def of(self, stacked: Tensor) -> Tensor:
        """The region, as a view of a parameter [E, rows, columns].

        Raises:
            IndexError: the parameter has fewer experts.
        """
        return stacked[self.expert].chunk(self.count, 0)[self.position]


@dataclass(frozen=True)
class Target:
    """Where a tensor goes: a parameter, or a part of one."""

    parameter: str
    part: Part | None = None


@dataclass(frozen=True)
class ExpertStack:
    """How per-expert matrices lie in the stacked parameters of a layer.

    Attributes:
        gate_up: parameter that holds, for each expert, the gate's rows and then the up rows.
        down: parameter that holds the down matrices.
    """

    gate_up: str = "gate_up_proj"
    down: str = "down_proj"

    def target(self, owner: str, expert: int, matrix: str) -> Target | None:
        """The part that one expert's matrix fills; None for an unknown matrix."""
        if matrix in ("gate_proj", "up_proj"):
            return Target(f"{owner}.{self.gate_up}", Part(expert, int(matrix == "up_proj"), 2))
        if matrix == "down_proj":
            return Target(f"{owner}.{self.down}", Part(expert, 0, 1))
        return None

    def parts(self, parameter: str, num_experts: int) -> dict[Part, str]:
        """All parts of a stacked parameter, with the checkpoint name of each (empty for other parameters)."""
        owner, _, kind = parameter.rpartition(".")
        matrices = {self.gate_up: ("gate_proj", "up_proj"), self.down: ("down_proj",)}.get(kind, ())
        if not owner.endswith(".experts"):
            return {}
        return {
            Part(expert, position, len(matrices)): f"{owner}.{expert}.{matrix}.weight"
            for expert in range(num_experts)
            for position, matrix in enumerate(matrices)
        }


@dataclass(frozen=True)
class WeightMap:
    """The naming rules of a model family.

    Attributes:
        prefixes: (in the checkpoint, in the model) pairs; the first that fits is used.
        drops: tensors left out; asked before anything else.
        expert_stack: accepts one tensor per expert beside the stacked form; None where there are no experts.
    """

    prefixes: tuple[tuple[str, str], ...]
    drops: tuple[DropRule, ...]
    expert_stack: ExpertStack | None

    def resolve(self, name: str) -> Target | DropRule | None:
        """Where the tensor goes, or the rule that drops it; None if no rule knows it."""
        for rule in self.drops:
            if re.search(rule.pattern, name):
                return rule
        own = self.own_name(name)
        if own is None:
            return None
        match = _PER_EXPERT.match(own)
        if match is not None and self.expert_stack is not None:
            return self.expert_stack.target(match["owner"], int(match["expert"]), match["matrix"])
        return Target(own)

    def name_in_checkpoint(self, own: str, seen: Iterable[str]) -> str:
        """The name that a checkpoint with these tensors would use for a tensor that it lacks."""
        for theirs, ours in self.prefixes:
            if own.startswith(ours) and any(name.startswith(theirs) for name in seen):
                return theirs + own.removeprefix(ours)
        return own

    def own_name(self, name: str) -> str | None:
        """The tensor's name in the model, before experts are stacked; None if no prefix fits."""
        for theirs, ours in self.prefixes:
            if name.startswith(theirs):
                return ours + name.removeprefix(theirs)
        return None


def without_drop(weight_map: WeightMap, name: str) -> WeightMap:
    """The same map that takes what the rule of this name leaves out, under its own name."""
    drops = tuple(rule for rule in weight_map.drops if rule.name != name)
    return dataclasses.replace(
        weight_map, drops=drops, prefixes=(*weight_map.prefixes, (f"{name}.", f"{name}."))
    )
