"""An executor without a model that holds the scheduler to the letter of `qanat.core.batch`.

Like a real worker it knows a row's tokens, computed length, blocks and state from batches only. It writes "keys" into
blocks and a running hash into states, reads both back when it samples, and raises `ContractViolation` on the first
batch that a worker could not carry out: so a block owned twice, a state carried over a preemption, or a missing
reservation shows up at once and not as a slightly different text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from qanat.core.batch import (
    NewRow,
    RowOutput,
    ScheduledBatch,
    ScheduledRow,
    StateCopy,
    StepOutput,
    TokenLogprobs,
)
from tests.support.fake_model import EMPTY_STATE, absorb, sample


class ContractViolation(AssertionError):
    """The batch breaks the contract between scheduler and workers."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractViolation(message)


@dataclass
class HeldRow:
    """What the worker holds for a row."""

    new: NewRow
    token_ids: list[int]
    num_computed: int
    block_ids: list[int]
    has_ended: bool = False


@dataclass
class FakeExecutor:
    """Runs batches on the deterministic model of `tests.support.fake_model`.

    Attributes:
        num_blocks, num_states: pool sizes, the reserved id 0 included; num_states 0 means no recurrent layers.
        num_checkpoints: states behind the running ones, to which and from which they are copied.
        block_size: tokens per block.
        max_num_seqs, max_num_batched_tokens: what a batch may hold.
        vocab_size: of the model.
        errors: request id -> row error to report once the request has at least so many known tokens.
        num_failures: so many of the next steps raise from `result()` before anything is computed.
        collective_s: seconds of exchanges between ranks that it is to report.
        batches: every batch seen.
    """

    num_blocks: int
    num_states: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int = 97
    num_checkpoints: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    num_failures: int = 0
    collective_s: float = 0.0
    batches: list[ScheduledBatch] = field(default_factory=list)
    rows: dict[int, HeldRow] = field(default_factory=dict)
    is_shut_down: bool = False
    _block_owners: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _state_owners: dict[int, int] = field(default_factory=dict)
    _keys: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    _states: dict[int, tuple[int, int]] = field(default_factory=dict)
    _has_failed: bool = False

    def execute(self, batch: ScheduledBatch) -> Future[StepOutput]:
        """Carries a batch out at once.

        Raises:
            ContractViolation: see the module; after a failed step it is in the future.
        """
        require(batch.step_id == len(self.batches), f"step {batch.step_id} follows {len(self.batches) - 1}")
        self.batches.append(batch)
        future: Future[StepOutput] = Future()
        if self.num_failures:
            self.num_failures -= 1
            self._has_failed = True
            future.set_exception(RuntimeError("the step failed"))
            return future
        try:
            future.set_result(self._answer(batch))
        except ContractViolation as error:
            if not self._has_failed:  # one that was given before that was told finds rows that never came
                raise
            future.set_exception(error)
        return future

    def _answer(self, batch: ScheduledBatch) -> StepOutput:
        self._check_shape(batch)
        for row in batch.freed_rows:
            self._forget(row)
        for copy in batch.state_copies:
            self._copy_state(copy)
        for new in batch.new_rows:
            self._enter(new)
        return StepOutput(batch.step_id, [self._run(scheduled) for scheduled in batch.rows])

    def shutdown(self) -> None:
        self.is_shut_down = True

    def _check_shape(self, batch: ScheduledBatch) -> None:
        rows = [scheduled.row for scheduled in batch.rows]
        new_rows = [new.row for new in batch.new_rows]
        require(bool(rows), "a batch has at least one row")
        require(len(set(rows)) == len(rows), f"a row is scheduled twice: {rows}")
        require(len(set(new_rows)) == len(new_rows), f"a row is entered twice: {new_rows}")
        require(len(set(batch.freed_rows)) == len(batch.freed_rows), f"freed twice: {batch.freed_rows}")
        require(set(new_rows) <= set(rows), "a row that enters is computed in the same step")
        require(all(0 <= row < self.max_num_seqs for row in rows), f"row outside the batch: {rows}")
        require(
            batch.num_tokens <= self.max_num_batched_tokens, f"{batch.num_tokens} tokens exceed the budget"
        )
        for scheduled in batch.rows:
            is_new = scheduled.row in new_rows
            require(not (is_new and scheduled.new_block_ids), "a new row brings its blocks itself")

    def _forget(self, row: int) -> None:
        held = self.rows.pop(row, None)
        if held is None:
            require(self._has_failed, f"row {row} is freed but not held")
            return
        for block_id in held.block_ids:
            self._block_owners[block_id].remove(row)
        if held.new.state_id:
            del self._state_owners[held.new.state_id]

    def _enter(self, new: NewRow) -> None:
        require(new.row not in self.rows, f"row {new.row} is entered but held")
        require(
            0 <= new.num_computed_tokens < len(new.token_ids), "a new row has at least one token to compute"
        )
        require(1 <= new.num_prompt_tokens <= len(new.token_ids), "prompt tokens are known tokens")
        held = HeldRow(new, list(new.token_ids), new.num_computed_tokens, [])
        self.rows[new.row] = held
        self._own_blocks(held, new.block_ids)
        if self.num_states == 0:
            require(new.state_id == 0, "no recurrent layers: the state id is 0")
            return
        require(0 < new.state_id < self.num_states, f"state {new.state_id} is outside the pool")
        require(new.state_id not in self._state_owners, f"state {new.state_id} is owned twice")
        self._state_owners[new.state_id] = new.row

    def _own_blocks(self, held: HeldRow, block_ids: list[int]) -> None:
        """A block that others have too holds what was computed before."""
        for block_id in block_ids:
            require(0 < block_id < self.num_blocks, f"block {block_id} is outside the pool")
            is_full = (len(held.block_ids) + 1) * self.block_size <= held.num_computed
            require(is_full or not self._block_owners[block_id], f"block {block_id} is owned twice")
            self._block_owners[block_id].add(held.new.row)
            held.block_ids.append(block_id)

    def _copy_state(self, copy: StateCopy) -> None:
        """Checkpoints lie behind the running states and are made on the grid only."""
        end = self.num_states + self.num_checkpoints
        require(0 < copy.source < end and 0 < copy.target < end, f"{copy} is outside the pool")
        is_kept = copy.target >= self.num_states
        require(is_kept != (copy.source >= self.num_states), f"{copy} is neither kept nor restored")
        state = self._states[copy.source]
        require(state[1] > 0 and state[1] % 64 == 0, f"the state of {state[1]} tokens is copied")
        self._states[copy.target] = state

    def _keep_state(self, target: int, state: tuple[int, int]) -> None:
        is_kept = self.num_states <= target < self.num_states + self.num_checkpoints
        require(is_kept, f"{target} is no place of a checkpoint")
        require(state[1] % 64 == 0, f"the state of {state[1]} tokens is kept")
        self._states[target] = state

    def _run(self, scheduled: ScheduledRow) -> RowOutput:
        require(scheduled.row in self.rows, f"row {scheduled.row} is scheduled but not held")
        held = self.rows[scheduled.row]
        self._own_blocks(held, scheduled.new_block_ids)
        if held.has_ended:
            return RowOutput(scheduled.row, [])
        start, end = held.num_computed, held.num_computed + scheduled.num_scheduled_tokens
        require(
            start < end <= len(held.token_ids), f"positions {start}..{end} of {len(held.token_ids)} tokens"
        )
        state = self._load_state(held)
        stores = dict(scheduled.stores)
        require(
            [num for num, _ in scheduled.stores] == sorted(stores),
            "states are kept in the order of their rows",
        )
        for position in range(start, end):
            state = self._compute(held, position, state)
            if (target := stores.pop(position + 1 - start, None)) is not None:
                self._keep_state(target, (state, position + 1))
        require(not stores, f"{stores} are to be kept and never passed")
        prompt_logprobs = self._prompt_logprobs(held, start, end)
        if end < len(held.token_ids):
            self._store_state(held, state)
            return RowOutput(scheduled.row, [], prompt_logprobs=prompt_logprobs)
        error_length = self.errors.get(held.new.request_id)
        if error_length is not None and len(held.token_ids) >= error_length:
            held.has_ended = True
            self._store_state(held, state)
            return RowOutput(scheduled.row, [], error="The logits are not finite.")
        most = scheduled.max_draft_tokens
        require(end + most <= len(held.block_ids) * self.block_size, "drafts have places of their own")
        token_ids = self._sample(held, state, most) if held.new.sampling.max_tokens else []
        logprobs = [TokenLogprobs([token_id], [-1.0], 1) for token_id in token_ids]
        if held.new.sampling.logprobs is None:
            logprobs = []
        return RowOutput(scheduled.row, token_ids, logprobs, prompt_logprobs, num_drafted=most)

    def _load_state(self, held: HeldRow) -> int:
        """The running state; a sequence that starts, starts from the empty one, whatever the slot holds."""
        if held.num_computed == 0:
            return EMPTY_STATE
        if self.num_states:
            state, num_tokens = self._states[held.new.state_id]
            require(
                num_tokens == held.num_computed, f"the state holds {num_tokens} of {held.num_computed} tokens"
            )
            return state
        state = EMPTY_STATE
        for token_id in held.token_ids[: held.num_computed]:
            state = absorb(state, token_id)
        return state

    def _store_state(self, held: HeldRow, state: int) -> None:
        self._states[held.new.state_id] = (state, held.num_computed)

    def _compute(self, held: HeldRow, position: int, state: int) -> int:
        """Writes one token's key and folds the token into the state."""
        index, offset = divmod(position, self.block_size)
        require(index < len(held.block_ids), f"no block is reserved for position {position}")
        owners = self._block_owners[held.block_ids[index]]
        require(owners == {held.new.row}, f"position {position} is written into a block of {owners}")
        self._keys[held.block_ids[index], offset] = (position, held.token_ids[position])
        held.num_computed = position + 1
        return absorb(state, held.token_ids[position])

    def _sample(self, held: HeldRow, state: int, max_draft_tokens: int) -> list[int]:
        """One token, and more while they agree with the drafts that this pretends to have."""
        self._check_keys(held)
        new, sampled = held.new, []
        num_wanted = 1 + state % (1 + max_draft_tokens)
        while True:
            num_outputs = len(held.token_ids) - new.num_prompt_tokens
            masked = new.stop_token_ids if num_outputs < new.sampling.min_tokens else []
            token_id = sample(
                state, seed=new.seed, choice_index=new.choice_index, vocab_size=self.vocab_size, masked=masked
            )
            sampled.append(token_id)
            held.token_ids.append(token_id)
            held.has_ended |= token_id in new.stop_token_ids and num_outputs + 1 >= new.sampling.min_tokens
            if len(sampled) == num_wanted or held.num_computed == len(held.block_ids) * self.block_size:
                self._store_state(held, state)
                return sampled
            state = self._compute(held, held.num_computed, state)

    def _check_keys(self, held: HeldRow) -> None:
        """Attention reads every position: each must still hold this sequence's token."""
        for position, token_id in enumerate(held.token_ids):
            index, offset = divmod(position, self.block_size)
            found = self._keys.get((held.block_ids[index], offset))
            require(found == (position, token_id), f"position {position} holds {found}, not token {token_id}")

    def _prompt_logprobs(self, held: HeldRow, start: int, end: int) -> list[TokenLogprobs]:
        """Computing a position scores the token after it."""
        if held.new.sampling.prompt_logprobs is None:
            return []
        scored = held.new.token_ids[start + 1 : min(end + 1, held.new.num_prompt_tokens)]
        return [TokenLogprobs([token_id], [-2.0], 1) for token_id in scored]
