"""The fake executor must notice what it is there to notice."""

from __future__ import annotations

import pytest

from qanat.core.batch import NewRow, ScheduledBatch, ScheduledRow
from qanat.core.sampling_params import SamplingParams
from tests.support.fake_executor import ContractViolation, FakeExecutor
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import make_request


def make_executor() -> FakeExecutor:
    return FakeExecutor(num_blocks=9, num_states=4, block_size=4, max_num_seqs=4, max_num_batched_tokens=32)


def new_row(
    row: int, num_tokens: int, block_ids: list[int], state_id: int, *, num_computed_tokens: int = 0
) -> NewRow:
    return NewRow(
        row=row,
        request_id=f"r{row}",
        token_ids=list(range(num_tokens)),
        num_prompt_tokens=num_tokens,
        num_computed_tokens=num_computed_tokens,
        sampling=SamplingParams(max_tokens=9),
        seed=1,
        choice_index=0,
        stop_token_ids=[],
        block_ids=block_ids,
        state_id=state_id,
    )


def started() -> FakeExecutor:
    """Row 0 has computed its 4 prompt tokens in block 1 and knows a fifth token."""
    executor = make_executor()
    executor.execute(ScheduledBatch(0, [], [new_row(0, 4, [1], 1)], [ScheduledRow(0, 4, [])])).result()
    return executor


def test_it_runs_the_deterministic_model() -> None:
    executor = started()
    tokens = [executor.rows[0].token_ids[-1]]
    for step, new_block_ids in enumerate([[2], [], [], [], [3]], start=1):
        future = executor.execute(ScheduledBatch(step, [], [], [ScheduledRow(0, 1, new_block_ids)]))
        tokens += future.result().rows[0].token_ids
    request = make_request("r0", [0, 1, 2, 3], 6, request_seed=1)
    assert tokens == undisturbed_output(request, executor.vocab_size)


@pytest.mark.parametrize(
    ("freed", "new_rows", "rows", "message"),
    [
        ([], [], [ScheduledRow(0, 1, [])], "no block is reserved for position 4"),
        ([], [], [ScheduledRow(0, 2, [2])], "positions 4..6 of 5 tokens"),
        ([], [], [ScheduledRow(0, 0, [2])], "positions 4..4"),
        ([], [], [ScheduledRow(0, 1, [1])], "block 1 is owned twice"),
        ([], [], [ScheduledRow(0, 1, [0])], "block 0 is outside the pool"),
        ([], [], [ScheduledRow(0, 1, [9])], "block 9 is outside the pool"),
        ([], [], [ScheduledRow(0, 1, [2]), ScheduledRow(0, 1, [])], "scheduled twice"),
        ([], [], [ScheduledRow(1, 1, [])], "row 1 is scheduled but not held"),
        ([], [], [ScheduledRow(4, 1, [])], "outside the batch"),
        ([], [], [], "at least one row"),
        ([0], [], [ScheduledRow(0, 1, [2])], "row 0 is scheduled but not held"),
        ([1], [], [ScheduledRow(0, 1, [2])], "row 1 is freed but not held"),
        ([0, 0], [], [ScheduledRow(0, 1, [2])], "freed twice"),
        ([], [new_row(0, 4, [2], 2)], [ScheduledRow(0, 4, [])], "row 0 is entered but held"),
        ([], [new_row(1, 4, [1], 2)], [ScheduledRow(1, 4, [])], "block 1 is owned twice"),
        ([], [new_row(1, 4, [2], 1)], [ScheduledRow(1, 4, [])], "state 1 is owned twice"),
        ([], [new_row(1, 4, [2], 0)], [ScheduledRow(1, 4, [])], "state 0 is outside the pool"),
        ([], [new_row(1, 4, [2], 2)], [ScheduledRow(1, 4, [3])], "a new row brings its blocks itself"),
        ([], [new_row(1, 4, [2], 2)], [ScheduledRow(0, 1, [3])], "computed in the same step"),
        ([], [new_row(1, 40, list(range(2, 9)), 2)], [ScheduledRow(1, 33, [])], "exceed the budget"),
        ([], [new_row(1, 4, [2], 2, num_computed_tokens=4)], [ScheduledRow(1, 1, [])], "at least one token"),
    ],
)
def test_it_refuses_what_a_worker_could_not_carry_out(
    freed: list[int], new_rows: list[NewRow], rows: list[ScheduledRow], message: str
) -> None:
    with pytest.raises(ContractViolation, match=message):
        started().execute(ScheduledBatch(1, freed, new_rows, rows))


def test_it_refuses_a_state_that_belongs_to_another_length() -> None:
    # A row that claims computed tokens finds the former owner's state: what ENG-005 is about.
    executor = started()
    resumed = new_row(0, 6, [1, 2], 1, num_computed_tokens=2)
    with pytest.raises(ContractViolation, match="the state holds 4 of 2 tokens"):
        executor.execute(ScheduledBatch(1, [0], [resumed], [ScheduledRow(0, 4, [])]))


def test_it_refuses_blocks_whose_content_is_another_sequence() -> None:
    executor = started()
    executor.execute(ScheduledBatch(1, [0], [new_row(1, 3, [1], 1)], [ScheduledRow(1, 3, [])])).result()
    # Claims that block 2 holds its first four tokens; nothing was ever written there.
    executor._states[2] = (0, 4)
    claim = new_row(0, 5, [2, 3], 2, num_computed_tokens=4)
    with pytest.raises(ContractViolation, match="position 0 holds None"):
        executor.execute(ScheduledBatch(2, [], [claim], [ScheduledRow(0, 1, [])]))


def test_steps_come_in_order() -> None:
    with pytest.raises(ContractViolation, match="step 5 follows 0"):
        started().execute(ScheduledBatch(5, [], [], [ScheduledRow(0, 1, [2])]))
