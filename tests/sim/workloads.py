"""Random workloads for the scheduler: what arrives when, and what is done to it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Arrival:
    """One request and its fate. Steps are counted from its arrival; None means never.

    Attributes:
        gap: steps after the arrival before it.
        owner: whose it is, taken modulo the workload's number of owners.
        family, num_common_tokens: so many leading tokens it has in common with others of its family.
        deadline_s, queue_deadline_s, first_token_deadline_s: after arrival; a step takes 0.01 s.
    """

    gap: int
    num_prompt_tokens: int
    family: int
    num_common_tokens: int
    max_tokens: int
    priority: int
    owner: int
    min_tokens: int
    num_stop_tokens: int
    num_prior_output: int
    wants_prompt_logprobs: bool
    deadline_s: float | None
    queue_deadline_s: float | None
    first_token_deadline_s: float | None
    abort_after: int | None
    is_aborted_twice: bool
    preempt_after: int | None
    error_at: int | None


@dataclass(frozen=True)
class Workload:
    """A configuration and what arrives. Prefixes are reused unless `num_checkpoints` is None."""

    policy: str
    block_size: int
    num_blocks: int
    num_states: int
    num_checkpoints: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    is_chunked_prefill_enabled: bool
    max_decode_stall_s: float
    max_waiting_requests: int
    max_queue_wait_s: float | None
    num_owners: int
    max_draft_tokens: int
    overlap_depth: int
    arrivals: tuple[Arrival, ...]


def rarely(
    strategy: st.SearchStrategy[int] | st.SearchStrategy[float],
) -> st.SearchStrategy[float | int | None]:
    """Mostly None."""
    return st.one_of(st.none(), st.none(), st.none(), strategy)


def arrivals(*, is_crowded: bool) -> st.SearchStrategy[Arrival]:
    """One request; crowded ones arrive together, are short at first and grow long."""
    return st.builds(
        Arrival,
        gap=st.just(0) if is_crowded else st.sampled_from([0, 0, 0, 1, 3, 20]),
        num_prompt_tokens=st.integers(1, 24) if is_crowded else st.integers(1, 160),
        family=st.integers(0, 2),
        num_common_tokens=st.sampled_from([0, 8, 24] if is_crowded else [0, 20, 64, 128, 160]),
        max_tokens=st.integers(20, 60) if is_crowded else st.integers(0, 60),
        priority=st.integers(-2, 2),
        owner=st.integers(0, 5),
        min_tokens=st.sampled_from([0, 0, 2, 10]),
        num_stop_tokens=st.sampled_from([0, 0, 0, 3]),
        num_prior_output=st.sampled_from([0, 0, 0, 5]),
        wants_prompt_logprobs=st.booleans(),
        deadline_s=rarely(st.floats(0.0, 1.0)),
        queue_deadline_s=rarely(st.floats(0.0, 0.5)),
        first_token_deadline_s=rarely(st.floats(0.0, 0.5)),
        abort_after=rarely(st.integers(0, 30)),
        is_aborted_twice=st.booleans(),
        preempt_after=rarely(st.integers(1, 30)),
        error_at=rarely(st.integers(1, 100)),
    )


def workloads(*, is_crowded: bool) -> st.SearchStrategy[Workload]:
    """Anything at all, or a pool so small that running requests must make each other give way."""
    return st.builds(
        Workload,
        policy=st.sampled_from(["fcfs", "priority"]),
        block_size=st.just(4) if is_crowded else st.sampled_from([4, 16, 64]),
        num_blocks=st.integers(21, 32) if is_crowded else st.integers(2, 80),
        num_states=st.sampled_from([0, 8]) if is_crowded else st.sampled_from([0, 1, 2, 8]),
        num_checkpoints=st.sampled_from([None, 0, 1, 3, 20]),
        max_num_seqs=st.integers(3, 8) if is_crowded else st.integers(1, 8),
        max_num_batched_tokens=st.sampled_from([8, 48, 64, 100, 256]),
        long_prefill_token_threshold=st.sampled_from([0, 0, 16, 64]),
        is_chunked_prefill_enabled=st.booleans(),
        max_decode_stall_s=st.sampled_from([0.0, 1e9]),
        max_waiting_requests=st.sampled_from([1000] if is_crowded else [3, 1000]),
        max_queue_wait_s=st.sampled_from([None, None, 0.1]),
        num_owners=st.integers(1, 3),
        max_draft_tokens=st.sampled_from([0, 0, 2, 5]),
        overlap_depth=st.integers(0, 2),
        arrivals=st.lists(arrivals(is_crowded=is_crowded), min_size=3 if is_crowded else 1, max_size=12).map(
            tuple
        ),
    )
