"""Which drafter the settings ask for."""

from __future__ import annotations

from qanat.config.speculative import NGRAM, SpeculativeSettings
from qanat.worker.drafters.base import Drafter
from qanat.worker.drafters.ngram import NgramDrafter


def make_drafter(settings: SpeculativeSettings) -> Drafter | None:
    """The drafter; None without speculation."""
    if settings.method == NGRAM:
        return NgramDrafter(settings.prompt_lookup_min, settings.prompt_lookup_max)
    return None
