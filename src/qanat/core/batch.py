"""The only two messages between the engine and its workers. Both are plain data, without tensors.

A `ScheduledBatch` names requests, rows and reserved blocks only. For rows that continue, the worker itself holds
the tokens and the computed length and derives ids, positions and slots; the scheduler reserves for the worst
case and is corrected by the `StepOutput`.
"""

from __future__ import annotations

import msgspec

from qanat.core.constraint import Constraint
from qanat.core.sampling_params import SamplingParams


class NewRow(msgspec.Struct, frozen=True):
    """A request that enters a batch row: new, or resumed after preemption.

    Attributes:
        row: batch row in [0, max_num_seqs).
        request_id: for messages only.
        token_ids: prompt and prior output.
        num_prompt_tokens: how many of them are prompt.
        num_computed_tokens: already in the cache (a prefix hit); the next token to compute has this position.
        sampling: the request's sampling settings.
        seed: 64-bit noise seed.
        choice_index: part of the noise key.
        stop_token_ids: masked until min_tokens is reached.
        block_ids: KV blocks reserved so far, in order.
        state_id: running state slot, 0 if the model has no recurrent layers.
        constraint: the form that the output must have; prior output in `token_ids` is part of it.
    """

    row: int
    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    num_computed_tokens: int
    sampling: SamplingParams
    seed: int
    choice_index: int
    stop_token_ids: list[int]
    block_ids: list[int]
    state_id: int
    constraint: Constraint | None = None


class ScheduledRow(msgspec.Struct, frozen=True):
    """Work of one row in this step.

    Attributes:
        row: batch row.
        num_scheduled_tokens: tokens to compute, from the row's computed length on.
        new_block_ids: blocks reserved since the row's last step (empty for a row that enters now).
        stores: (number of these tokens, state id) in ascending order: the state that the row has after so many of them
            is kept there too.
        max_draft_tokens: so many drafts of the worker's own may be verified behind them; blocks are reserved for all.
    """

    row: int
    num_scheduled_tokens: int
    new_block_ids: list[int]
    max_draft_tokens: int = 0
    stores: list[tuple[int, int]] = []


class StateCopy(msgspec.Struct, frozen=True, array_like=True):
    """A recurrent and conv state to be copied, in all layers.

    Attributes:
        source: state id; a running state or a checkpoint.
        target: state id.
    """

    source: int
    target: int


class ScheduledBatch(msgspec.Struct, frozen=True):
    """One step's work.

    Attributes:
        step_id: counts up from 0.
        freed_rows: rows to forget before anything else (finished, aborted, preempted); an empty row may be among
            them after a failed step.
        new_rows: rows that enter; each of them is also in `rows`.
        rows: what is computed, in batch order; at least one.
        state_copies: to be made one after the other before anything is computed, as the steps before have left the
            states: checkpoints of running states, and running states that begin from a checkpoint.
    """

    step_id: int
    freed_rows: list[int]
    new_rows: list[NewRow]
    rows: list[ScheduledRow]
    state_copies: list[StateCopy] = []

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step at most: drafts that the worker does not make are not computed."""
        return sum(row.num_scheduled_tokens + row.max_draft_tokens for row in self.rows)


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities at one position, from the unmodified distribution (fp32 log-softmax of the logits).

    Attributes:
        token_ids: the token that stands there first, then the most likely ones, best first.
        logprobs: natural logarithms, same order.
        rank: 1-based rank of the first token.
    """

    token_ids: list[int]
    logprobs: list[float]
    rank: int


class RowOutput(msgspec.Struct):
    """What a step produced for one row; filled in while the step runs.

    Attributes:
        row: batch row.
        token_ids: sampled tokens in order; empty while the prompt is not finished. All but the last were drafts, or
            there is only one.
        logprobs: one entry per sampled token if asked for.
        prompt_logprobs: entries for prompt positions finished in this step, in order, if asked for.
        error: why no token could be chosen; the request ends with it.
        error_code: stable code of that error (see qanat.core.errors).
        num_drafted: drafts that were verified.
    """

    row: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[TokenLogprobs] = []
    error: str = ""
    error_code: str = "numeric_error"
    num_drafted: int = 0


class GraphUse(msgspec.Struct, frozen=True):
    """How a step's forward pass ran.

    Attributes:
        kind: "full", "piecewise" or "eager".
        is_decode: every row computed one token.
        reason: why no graph stood for it, if it ran eagerly.
        capture_s: seconds that capturing its graph took; 0 if the graph was there.
        num_arena_misses: outputs since the pass before that the arena had no room for.
    """

    kind: str
    is_decode: bool
    reason: str = ""
    capture_s: float = 0.0
    num_arena_misses: int = 0


class StepOutput(msgspec.Struct, frozen=True):
    """Answer to a `ScheduledBatch` of the same step_id.

    Attributes:
        step_id: the batch's.
        rows: one entry per scheduled row, in batch order.
        graph: how the pass ran; None if whoever computed it does not tell.
        draft_s: seconds that making the drafts took.
        draft_capture_s: seconds beside them that capturing graphs for it took.
    """

    step_id: int
    rows: list[RowOutput]
    graph: GraphUse | None = None
    draft_s: float = 0.0
    draft_capture_s: float = 0.0
