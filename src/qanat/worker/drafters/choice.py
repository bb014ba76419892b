"""Which drafter the settings ask for."""

from __future__ import annotations

from collections.abc import Callable

from qanat.config.graphs import GraphSettings
from qanat.config.resolved import ResolvedConfig
from qanat.config.speculative import NGRAM
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.drafters.base import Drafter, DraftModel
from qanat.worker.drafters.draft_passes import DraftPasses, DraftSizes
from qanat.worker.drafters.layer import LayerDrafter
from qanat.worker.drafters.ngram import NgramDrafter
from qanat.worker.graphs.maker import GraphMaker
from qanat.worker.row_state import RowTable

DrafterMaker = Callable[[RowTable], Drafter]
"""Makes a drafter for the rows of a runner."""


def drafter_maker(
    config: ResolvedConfig,
    model: DraftModel | None,
    cache: CacheTensors,
    max_scored_rows: int,
    maker: GraphMaker | None,
) -> DrafterMaker | None:
    """The drafter of these settings; None without speculation.

    Args:
        config: the resolved configuration.
        model: that drafts, with its weights; None where none does.
        cache: its cache tensors.
        max_scored_rows: for which scores are computed at a time.
        maker: makes graphs.
    """
    settings = config.speculative
    if settings.method == NGRAM:
        return lambda table: NgramDrafter(settings.prompt_lookup_min, settings.prompt_lookup_max)
    if model is None:
        return None
    block_size = config.cache.block_size
    sizes = DraftSizes(
        max_drafts=settings.num_tokens,
        max_requests=config.scheduler.max_num_seqs,
        max_scored_rows=max_scored_rows,
        num_valid_token_ids=config.num_valid_token_ids or config.model.vocab_size,
        block_size=block_size,
    )
    graphs = GraphSettings() if settings.is_eager else config.graphs

    def make(table: RowTable) -> Drafter:
        passes = DraftPasses(model, table, cache, sizes, graphs, maker)
        return LayerDrafter(passes, table, cache, block_size)

    return make
