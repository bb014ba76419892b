"""What the runner asks of whoever drafts tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from qanat.core.batch import ScheduledBatch
from qanat.layers.context import ForwardContext
from qanat.worker.batch_inputs import RowWork
from qanat.worker.hidden_ring import HiddenRing


class Drafter(Protocol):
    """Guesses what comes next. A wrong guess costs time only: every draft is verified.

    Ranks that share the model draft alike: what is drafted follows from what all of them know.
    """

    @property
    def ring(self) -> HiddenRing | None:
        """Where steps are to keep their hidden rows for it; None where it needs none."""

    @property
    def capture_s(self) -> float:
        """Seconds of the last `propose` that were spent once for all steps of its kind, on capturing graphs."""

    def begin(self, batch: ScheduledBatch) -> None:
        """Sees what a step brings before anything is computed: requests that enter, and blocks that change hands."""

    def pause(self) -> None:
        """No row that decodes in this step is to have drafts: whatever is kept for them may be forgotten.

        Called in place of `propose`. Steps without drafts are to cost what they cost without a drafter.
        """

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        """Drafts for rows about to be computed, each with its newest token last.

        Args:
            works: of this step; all known tokens of a row with drafts are in its work.
            max_drafts: most drafts of each; 0 for rows that are to have none.

        Returns:
            For each row the tokens that are to follow its newest one, in order; none where nothing comes to mind.
        """

    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """Sees what the step has computed, once its tokens are chosen.

        Args:
            works: of this step.
            hidden: [T, C] rows behind the final norm, those of rejected drafts among them.
            taps: [T, C] each, the rows that entered the layers that the model's config names.
        """


class DraftModel(Protocol):
    """Layers that guess from rows of the model and the tokens behind them."""

    @property
    def draft_rows(self) -> tuple[int, torch.dtype]:
        """Width D and type of the rows that drafts are made from."""

    def draft_inputs(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        """The rows [T, D] that a pass of the model gives to draft from, see `Drafter.observe`."""

    def rotary_rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (cos, sin) of positions [A, T] int64."""

    def draft(self, token_ids: Tensor, hidden: Tensor, context: ForwardContext) -> Tensor:
        """Tokens [T] and the rows before them [T, D] -> rows [T, D] that the next guess may read in their place."""

    def draft_logits(self, rows: Tensor) -> Tensor:
        """Scores of the vocabulary for what `draft` returned: [N, D] -> [N, V] fp32."""
