"""Streams of the device that graphs take while they are captured.

A piecewise graph has a stream for every layer and one more, a full graph one; each communication group adds to that
as the budget of releases up to 0.20.2 counted them (`capture.max_num_graphs`). A drafter captures graphs of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from qanat.deploy.sizing.capture import STREAMS_PER_GROUP

DEVICE_STREAMS = 1984
"""Streams at whose number captures failed in reports (issues 8393 and 9564), with drivers before 25.5.1."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What is captured.

    Attributes:
        num_layers: hidden layers of the model.
        num_draft_layers: layers of the drafter; 0 without speculation.
        num_groups: how many of data and tensor parallelism are above 1, plus one each for expert parallelism and the
            overlap of the shared expert.
        is_moe: the model has experts.
        is_dp: the data parallel size is above 1.
        is_aiv: collectives run on the vector cores.
    """

    num_layers: int
    num_draft_layers: int
    num_groups: int
    is_moe: bool
    is_dp: bool
    is_aiv: bool

    @property
    def streams_per_size(self) -> int:
        """Of one size of piecewise graphs."""
        per_graph = self.num_layers + 1 + (self.num_draft_layers + 1 if self.num_draft_layers else 0)
        return per_graph * self._factor

    @property
    def _factor(self) -> int:
        if not self.is_aiv:
            return 1 + 2 * self.num_groups
        return 1 + self.num_groups + int(self.is_moe and self.is_dp)

    def num_streams(self, num_piecewise: int, num_full: int) -> int:
        """Streams for so many sizes of piecewise and of full graphs.

        A full graph is one, and one for the drafter.
        """
        full = num_full * (2 if self.num_draft_layers else 1) * self._factor
        fixed = 0 if self.is_aiv else self.num_groups * STREAMS_PER_GROUP
        return fixed + num_piecewise * self.streams_per_size + full
