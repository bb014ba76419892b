"""What planners choose, and when."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from qanat.deploy.knowledge.entry import Lifetime


class Circumstances(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a practice holds; empty and None hold always.

    `chips` are names or families; `attention` is hybrid for models with recurrent states; `least_nodes` counts the
    nodes of the deployment; `is_data_parallel` and `is_tensor_parallel` ask for a size above 1 (or for exactly 1,
    where false).
    """

    scenarios: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    topologies: tuple[str, ...] = ()
    attention: Literal["hybrid", "full"] | None = None
    mlp: Literal["moe", "dense"] | None = None
    least_nodes: int | None = None
    is_data_parallel: bool | None = None
    is_tensor_parallel: bool | None = None


class Practice(Lifetime, frozen=True, kw_only=True):
    """What the planner chooses where `when` and the versions hold; of several the first in its file counts.

    Attributes:
        what: flag, variable or property, as a plan names it.
        value: what is chosen; None where it is computed, or where nothing is to be set.
        when: circumstances.
        reason: one sentence; names in braces are replaced by numbers of the plan.
        changes_if: what would lead to another value.
    """

    what: str
    value: str | int | float | bool | dict[str, Any] | None = None
    when: Circumstances = Circumstances()
    reason: str
    changes_if: str = ""
