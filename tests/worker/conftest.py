"""Builders that the worker's tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from qanat.core.batch import NewRow
from qanat.core.sampling_params import SamplingParams
from qanat.worker.row_state import RowState

MakeRow = Callable[..., RowState]


@pytest.fixture
def make_row() -> MakeRow:
    """Builds the state of a row that is about to choose a token."""

    def build(
        prompt: Sequence[int] = (1,),
        output: Sequence[int] = (),
        *,
        seed: int = 0,
        choice_index: int = 0,
        stop_token_ids: Sequence[int] = (),
        num_valid: int = 2**31 - 1,
        **sampling: Any,
    ) -> RowState:
        new_row = NewRow(
            row=0,
            request_id="r",
            token_ids=[*prompt, *output],
            num_prompt_tokens=len(prompt),
            num_computed_tokens=0,
            sampling=SamplingParams(**sampling),
            seed=seed,
            choice_index=choice_index,
            stop_token_ids=list(stop_token_ids),
            block_ids=[],
            state_id=0,
        )
        return RowState(new_row, num_valid)

    return build
