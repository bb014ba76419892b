from __future__ import annotations

import dataclasses

import msgspec
import pytest

from qanat.core.batch import NewRow, ScheduledBatch, ScheduledRow
from qanat.core.constraint import Constraint
from qanat.core.errors import EngineDeadError
from qanat.core.sampling_params import SamplingParams
from qanat.executor.planning import plan_start
from qanat.executor.rank_messages import RankReport, RankStart, without_choices
from qanat.executor.reports import check_report, report_of
from tests.worker.tiny_model import tiny_config


def report(**changes: object) -> RankReport:
    made = report_of(1, tiny_config(), "127.0.0.1", 2**30)
    return msgspec.structs.replace(made, **changes)


def test_a_configuration_has_the_same_digest_on_the_other_side() -> None:
    config = dataclasses.replace(tiny_config(), tensor_parallel_size=2)
    memory = plan_start(config, available_bytes=2**31).memory
    start = RankStart(1, 0, 1, config, memory, "127.0.0.1", b"secret", 60.0, 20, "text", True)
    there = msgspec.msgpack.decode(msgspec.msgpack.encode(start), type=RankStart)
    assert there == start
    ours, theirs = (report_of(0, each.config, "127.0.0.1", 1) for each in (start, there))
    check_report(ours, theirs)
    assert ours.config_digest != report().config_digest


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"versions": {"qanat": "0", "python": "3", "torch": "2"}}, "qanat 0 instead of"),
        ({"versions": {}}, "torch unknown instead of"),
        ({"config_digest": "f" * 64}, "configuration ffffffffffff instead of"),
    ],
)
def test_a_mismatch_names_the_rank_and_what_differs(changes: dict[str, object], part: str) -> None:
    with pytest.raises(EngineDeadError, match=part) as caught:
        check_report(report(rank=0), report(rank=3, pid=77, host="far", **changes))
    assert "Rank 3 (process 77 on far)" in caught.value.message


def test_ranks_that_choose_nothing_hear_how_drafts_are_drawn_and_what_ends_them_but_no_more() -> None:
    sampling = SamplingParams(temperature=0.7, top_k=5, max_tokens=0, prompt_logprobs=2, logit_bias={3: 1.0})
    constraint = Constraint("guidance", "x" * 10_000)
    new_row = NewRow(2, "r", [1, 2, 3], 3, 0, sampling, 5, 1, [9], [4, 6], 7, constraint)
    batch = ScheduledBatch(8, [1], [new_row], [ScheduledRow(2, 3, [])])
    told = without_choices(batch)
    assert (told.step_id, told.freed_rows, told.rows) == (8, [1], batch.rows)
    (row,) = told.new_rows
    assert (row.row, row.token_ids, row.block_ids, row.state_id) == (2, [1, 2, 3], [4, 6], 7)
    assert (row.sampling.max_tokens, row.sampling.prompt_logprobs) == (0, 2)
    assert (row.sampling.temperature, row.sampling.top_k, row.stop_token_ids) == (
        0.7,
        5,
        new_row.stop_token_ids,
    )
    assert row.stop_token_ids and row.constraint is None and not row.sampling.logit_bias
    assert len(msgspec.msgpack.encode(told)) < 1000
    plain = ScheduledBatch(9, [], [], [ScheduledRow(2, 1, [])])
    assert without_choices(plain) is plain
