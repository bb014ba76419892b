"""Serves requests with a layer that drafts, and keeps what it drafted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qanat.config.graphs import GraphSettings
from qanat.core.request import Request
from qanat.models.decoder import CausalLM
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.worker.batch_inputs import RowWork
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.drafters.base import DraftModel
from qanat.worker.drafters.draft_passes import DraftPasses, DraftSizes
from qanat.worker.drafters.layer import LayerDrafter
from qanat.worker.graphs.maker import NativeGraphMaker
from qanat.worker.row_state import RowTable
from tests.support.speculating import BLOCK_SIZE, LIMITS, Answers, run
from tests.support.step_loop import make_request
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import VOCAB_SIZE

GRAPHS = GraphSettings("FULL_DECODE_ONLY", (1, 2, 4, 8, 16, 32))
NUM_DRAFTS = 3
GREEDY = {"temperature": 0.0}


class Recorded(LayerDrafter):
    """Keeps what it drafted, and for what."""

    def __init__(self, passes: DraftPasses, table: RowTable, cache: CacheTensors) -> None:
        super().__init__(passes, table, cache, BLOCK_SIZE)
        self.drafts: list[tuple[list[int], list[int]]] = []

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        found = super().propose(works, max_drafts)
        for work, most, own in zip(works, max_drafts, found, strict=True):
            assert len(own) in (0, most)
            if own:
                self.drafts.append((work.state.tokens(0, work.state.num_tokens).tolist(), list(own)))
        return found


def speculate(
    model: CausalLM,
    requests: Sequence[tuple[str, int, int]],
    graphs: GraphSettings | None = None,
    draft_model: DraftModel | None = None,
    **how: Any,
) -> tuple[Answers, Recorded]:
    """Serves requests (see `requests_of`), greedily unless told otherwise; the model drafts, or a draft model."""
    made: list[Recorded] = []
    maker = NativeGraphMaker(2**22) if graphs is not None else None

    def make(table: RowTable, cache: CacheTensors) -> Recorded:
        sizes = DraftSizes(NUM_DRAFTS, LIMITS.max_num_seqs, 64, VOCAB_SIZE, BLOCK_SIZE)
        passes = DraftPasses(draft_model or model, table, cache, sizes, graphs or GraphSettings(), maker)
        made.append(Recorded(passes, table, cache))
        return made[0]

    settings = how.pop("settings", GREEDY)
    lengths = how.pop("lengths", None) or DraftLengths(NUM_DRAFTS, is_adaptive=False)
    made_of = requests_of(requests, **settings)
    return run(model, made_of, make_drafter=make, lengths=lengths, graphs=graphs, **how), made[0]


def requests_of(requests: Sequence[tuple[str, int, int]], **settings: Any) -> list[Request]:
    """Requests (name, prompt length, output length) with random prompts and the same settings."""
    return [
        make_request(name, random_prompt(length, length), num, **settings) for name, length, num in requests
    ]
