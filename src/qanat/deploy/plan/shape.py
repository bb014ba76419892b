"""Parallel sizes of one engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Parallel sizes of one engine.

    Attributes:
        tp: tensor parallel size.
        dp: data parallel size over all nodes of the instance.
        num_nodes: of the instance.
    """

    tp: int
    dp: int
    num_nodes: int

    @property
    def ranks(self) -> int:
        """NPUs of the instance."""
        return self.tp * self.dp

    @property
    def npus_per_node(self) -> int:
        """NPUs that it uses on each node."""
        return self.ranks // self.num_nodes

    @property
    def dp_local(self) -> int:
        """Data parallel ranks on each node; 1 where one rank spans the nodes."""
        return max(1, self.dp // self.num_nodes)
