"""What the worker remembers of each batch row between steps, so that a `ScheduledBatch` need not repeat it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from qanat.core.batch import NewRow
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import IntegrityError
from qanat.kernels.draws import Draws, make_draw
from qanat.kernels.reference.gumbel import sequence_key
from qanat.worker.logit_edits import LogitEdits
from qanat.worker.row_form import FormBuffer, RowForm


@dataclass(frozen=True)
class FormMaker:
    """What rows with a form need of the worker.

    Attributes:
        factory: makes matchers.
        buffer: room for masks.
    """

    factory: MatcherFactory
    buffer: FormBuffer


class RowState:
    """One running request's tokens and progress.

    Args:
        new_row: as the scheduler announced it.
        num_valid_token_ids: ids from here on cannot be chosen.
        forms: makes matchers and has room for their masks; needed by a row with a constraint.

    Attributes:
        request_id: for messages only.
        sampling: the request's settings.
        draw: [1] how its tokens are chosen; the key is what the keys of all positions begin with.
        draw_address: of that record.
        state_id: place of the running recurrent state.
        stop_token_ids: tokens that may end the output.
        num_prompt_tokens: how many of the tokens are prompt.
        num_computed_tokens: tokens whose KV and state are in the cache.
        num_tokens: tokens known.
        num_drafts: guesses that stand behind them while a step verifies them.
        num_held: rows of the last step that linear-attention layers have yet to absorb (rule R8).
        num_blocks: KV blocks held.
        has_ended: nothing more will be wanted of it, whatever has been scheduled.
        tokens_address: of the int32 tokens.
        edits: what is done to the logits before sampling, None if nothing ever is.
        form: the form that the output is held to, if there is one.
    """

    def __init__(self, new_row: NewRow, num_valid_token_ids: int, forms: FormMaker | None = None) -> None:
        self.request_id = new_row.request_id
        self.sampling = new_row.sampling
        self.draw = _draw(new_row, num_valid_token_ids)
        self.draw_address = self.draw.ctypes.data
        self.state_id = new_row.state_id
        self.stop_token_ids = frozenset(new_row.stop_token_ids)
        self.num_prompt_tokens = new_row.num_prompt_tokens
        self.num_computed_tokens = new_row.num_computed_tokens
        self.num_tokens = len(new_row.token_ids)
        self.num_drafts = 0
        self.num_held = 0
        self.num_blocks = 0
        self.has_ended = False
        self._tokens: npt.NDArray[np.int32] = np.array(new_row.token_ids, dtype=np.int32)
        self.tokens_address = self._tokens.ctypes.data
        self.edits = LogitEdits.for_row(
            new_row.sampling,
            new_row.stop_token_ids,
            self._tokens[: self.num_prompt_tokens],
            self._tokens[self.num_prompt_tokens :],
            num_valid_token_ids,
        )
        self.form: RowForm | None = None
        if new_row.constraint is not None:
            if forms is None:
                raise IntegrityError(f"request {self.request_id} has a form, and nothing here makes matchers")
            prior_token_ids = new_row.token_ids[self.num_prompt_tokens :]
            self.form = RowForm(
                new_row.constraint, forms.factory, forms.buffer, new_row.stop_token_ids, prior_token_ids
            )

    @property
    def has_edits(self) -> bool:
        """True if `edit` may change anything now."""
        return self.form is not None or (self.edits is not None and self.edits.is_due)

    def edit(self, logits: Tensor) -> None:
        """Does to the scores of the next token what the request asks for, in place.

        Where a form leaves nothing but the end of the output, the end comes, whatever else was asked for. After an
        error of the form nothing may be chosen.

        Args:
            logits: [V] fp32.
        """
        has_mask = self.form is not None and self.form.fill_mask()
        if self.form is not None and self.form.error:
            logits.fill_(-math.inf)
            return
        is_over = has_mask and self.edits is not None and self.form is not None and self.form.is_over
        if self.edits is not None and self.edits.is_due and not is_over:
            self.edits.apply(logits)
        if has_mask and self.form is not None:
            self.form.apply_mask(logits)

    @property
    def samples(self) -> bool:
        """False for requests that only evaluate their prompt."""
        return self.sampling.max_tokens != 0

    @property
    def output_token_ids(self) -> npt.NDArray[np.int32]:
        """Tokens produced so far; a view."""
        return self._tokens[self.num_prompt_tokens : self.num_tokens]

    def tokens(self, start: int, end: int) -> npt.NDArray[np.int32]:
        """Tokens at positions start to end - 1; a view.

        Raises:
            IntegrityError: if they are not all known.
        """
        if not 0 <= start <= end <= self.num_tokens + self.num_drafts:
            raise IntegrityError(
                f"request {self.request_id}: tokens {start} to {end} were scheduled, but {self.num_tokens} are known"
            )
        return self._tokens[start:end]

    def append(self, token_ids: Sequence[int]) -> None:
        """Adds produced tokens."""
        end = self.num_tokens + len(token_ids)
        self._make_room(end)
        if len(token_ids) == 1:
            self._tokens[self.num_tokens] = token_ids[0]
        else:
            self._tokens[self.num_tokens : end] = token_ids
        self.num_tokens = end
        if self.edits is not None:
            self.edits.add_output(token_ids)
        if self.form is not None:
            self.form.add_output(token_ids)

    def put_drafts(self, token_ids: Sequence[int]) -> None:
        """Places guesses behind the known tokens, for one step to read."""
        end = self.num_tokens + len(token_ids)
        self._make_room(end)
        self._tokens[self.num_tokens : end] = token_ids
        self.num_drafts = len(token_ids)

    def _make_room(self, num_tokens: int) -> None:
        if num_tokens > len(self._tokens):
            grown: npt.NDArray[np.int32] = np.empty(max(64, 2 * num_tokens), dtype=np.int32)
            grown[: self.num_tokens] = self._tokens[: self.num_tokens]
            self._tokens, self.tokens_address = grown, grown.ctypes.data


def _draw(new_row: NewRow, num_valid_token_ids: int) -> Draws:
    sampling = new_row.sampling
    return make_draw(
        sequence_key(new_row.seed, new_row.choice_index),
        sampling.temperature,
        sampling.top_k if sampling.top_k < num_valid_token_ids else 0,
        sampling.top_p,
        sampling.min_p,
    )


class RowTable:
    """All rows of a worker, and their block tables.

    Args:
        num_rows: most requests that run at once.
        max_blocks_per_row: KV blocks of the longest request.
        num_valid_token_ids: ids from here on cannot be chosen.
        forms: see `RowState`.

    Attributes:
        block_tables: [rows, blocks] int32; entries past a row's `num_blocks` are left over from former owners.
        table_addresses: of each row of them.
    """

    def __init__(
        self,
        num_rows: int,
        max_blocks_per_row: int,
        num_valid_token_ids: int,
        forms: FormMaker | None = None,
    ) -> None:
        self._rows: list[RowState | None] = [None] * num_rows
        self._forms = forms
        self._num_valid_token_ids = num_valid_token_ids
        self.block_tables: npt.NDArray[np.int32] = np.zeros((num_rows, max_blocks_per_row), dtype=np.int32)
        self.table_addresses = [row.ctypes.data for row in self.block_tables]

    def __getitem__(self, row: int) -> RowState:
        """The request in this row.

        Raises:
            IntegrityError: if the row is empty.
        """
        state = self._rows[row]
        if state is None:
            raise IntegrityError(f"row {row} was scheduled but holds no request")
        return state

    def rows(self) -> Iterator[tuple[int, RowState]]:
        """All rows that are not empty, each with its request."""
        return ((row, state) for row, state in enumerate(self._rows) if state is not None)

    def enter(self, new_row: NewRow) -> None:
        """Puts a request into a row.

        Raises:
            IntegrityError: if the row is taken.
        """
        if self._rows[new_row.row] is not None:
            raise IntegrityError(f"row {new_row.row} was given to {new_row.request_id} but is not free")
        self._rows[new_row.row] = RowState(new_row, self._num_valid_token_ids, self._forms)
        self.add_blocks(new_row.row, new_row.block_ids)

    def free(self, row: int) -> None:
        """Forgets a row's request; a free row stays free."""
        self._rows[row] = None

    def add_blocks(self, row: int, block_ids: Sequence[int]) -> None:
        """Appends reserved blocks to a row's table.

        Raises:
            IntegrityError: if the table is full.
        """
        if not block_ids:
            return
        state = self[row]
        end = state.num_blocks + len(block_ids)
        if end > self.block_tables.shape[1]:
            raise IntegrityError(
                f"request {state.request_id} was given more blocks than its longest length needs"
            )
        self.block_tables[row, state.num_blocks : end] = block_ids
        state.num_blocks = end
