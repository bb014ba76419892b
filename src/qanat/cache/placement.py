"""Where a request's recurrent state is worth a checkpoint: a pure function of what is known about its prompt."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

GRID = 64
"""Checkpoints lie at absolute multiples of this many tokens: there the state's bits depend on the tokens alone (R7)."""

FIRST_SPACED = 512
"""The first of the positions that are placed by distance alone; each further one is twice as far."""


class Kind(enum.IntEnum):
    """Why there is a checkpoint."""

    BOUNDARY = 0
    """A later prompt is likely to part from this one there: the last user turn, or the reply, begins."""
    PROMPT_END = 1
    JUNCTION = 2
    """Two prompts have parted there already."""
    SPACED = 3
    OUTPUT = 4
    """The newest multiple of the grid in a request's output."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A position at which the prompt's computation stops so that the state can be kept.

    Attributes:
        position: multiple of the grid.
        kind: why.
    """

    position: int
    kind: Kind


def wanted_stops(
    num_tokens: int, *, start: int = 0, boundaries: Sequence[int] = (), junction: int = 0
) -> list[Stop]:
    """Positions after `start`, ascending, at which a prompt's state is to be kept.

    Args:
        num_tokens: of the prompt.
        start: so many are not computed.
        boundaries: positions at which later prompts are likely to part from this one.
        junction: so many leading tokens stand in the index already; beyond, this prompt parts from those before.
    """
    found: dict[int, Kind] = {}

    def want(position: int, kind: Kind) -> None:
        on_grid = position // GRID * GRID
        if start < on_grid <= num_tokens:
            found.setdefault(on_grid, kind)

    if junction < num_tokens - 1:
        want(junction, Kind.JUNCTION)
    for boundary in boundaries:
        want(boundary, Kind.BOUNDARY)
    want(num_tokens, Kind.PROMPT_END)
    spaced = FIRST_SPACED
    while spaced < num_tokens:
        # One that another stands close behind or before saves next to nothing.
        if all(abs(other - spaced) >= spaced // 4 for other in found):
            want(spaced, Kind.SPACED)
        spaced *= 2
    return [Stop(position, found[position]) for position in sorted(found)]
