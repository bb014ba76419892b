"""Estimate of the memory of captured graphs, which is taken after the cache has been allocated."""

from __future__ import annotations

import math

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.sizing.layout import Layout


def graph_bytes(layout: Layout, knowledge: Knowledge) -> int:
    """Bytes of one graph per captured size, over the layers of model and drafter; an estimate."""
    num_layers = layout.model.num_layers + (1 if layout.drafter else 0)
    kib = knowledge.estimate("graph_kib_per_layer")
    return math.ceil(len(layout.capture_sizes) * num_layers * kib * 1024)
