"""How far the quantised matrices are from the float ones: one entry each, and sums for people."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec

_LAYER = re.compile(r"^.*?layers\.(?P<layer>\d+)\.")
_EXPERT = re.compile(r"\.\d+\.")


class MatrixError(msgspec.Struct, frozen=True):
    """One quantised matrix.

    Attributes:
        matrix: its name in the checkpoint.
        kind: what it became, such as "W8A8_DYNAMIC".
        shape: (outputs, inputs).
        weight_error: size of the difference of the weights over the size of the weights, both as roots of sums of
            squares.
        output_error: the same of the products with some rows of activations, which are quantised too.
    """

    matrix: str
    kind: str
    shape: tuple[int, int]
    weight_error: float
    output_error: float


class ErrorGroup(msgspec.Struct, frozen=True):
    """The matrices of one part of all layers.

    Attributes:
        part: name without layer and expert, such as "self_attn.q_proj".
        kind: what they became.
        num_matrices: how many.
        weight_error, output_error: root of the mean square over them.
        worst_output_error: the largest.
        worst_matrix: which one has it.
    """

    part: str
    kind: str
    num_matrices: int
    weight_error: float
    output_error: float
    worst_output_error: float
    worst_matrix: str


def by_part(errors: Sequence[MatrixError]) -> list[ErrorGroup]:
    """The errors of each part, the largest first."""
    groups: defaultdict[tuple[str, str], list[MatrixError]] = defaultdict(list)
    for error in errors:
        groups[part_of(error.matrix), error.kind].append(error)
    found = []
    for (part, kind), members in groups.items():
        worst = max(members, key=lambda member: member.output_error)
        found.append(
            ErrorGroup(
                part=part,
                kind=kind,
                num_matrices=len(members),
                weight_error=_root_mean_square([member.weight_error for member in members]),
                output_error=_root_mean_square([member.output_error for member in members]),
                worst_output_error=worst.output_error,
                worst_matrix=worst.matrix,
            )
        )
    return sorted(found, key=lambda group: -group.output_error)


def part_of(matrix: str) -> str:
    """A matrix's name without layer and expert; the last word of those outside the layers."""
    if _LAYER.search(matrix) is None:
        return matrix.rpartition(".")[2]
    return _EXPERT.sub(".", _LAYER.sub("", matrix))


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))
