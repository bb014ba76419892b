"""Places of checkpoints, and which of them makes room."""

from __future__ import annotations

import pytest

from qanat.cache.checkpoints import Checkpoint, CheckpointPool
from qanat.cache.index import CachedBlock
from qanat.cache.placement import Kind
from qanat.core.errors import IntegrityError


def chain(num_blocks: int) -> list[CachedBlock]:
    blocks: list[CachedBlock] = []
    for number in range(num_blocks):
        parent = blocks[-1] if blocks else None
        blocks.append(CachedBlock(bytes([number]), parent, number + 1, 64 * (number + 1)))
    return blocks


def make(pool: CheckpointPool, block: CachedBlock, kind: Kind = Kind.PROMPT_END) -> Checkpoint:
    checkpoint = pool.make(block, kind)
    assert checkpoint is not None
    return checkpoint


def test_a_checkpoint_saves_the_tokens_since_the_one_before() -> None:
    pool, blocks = CheckpointPool(10, 4, 100), chain(8)
    deep, shallow = make(pool, blocks[7]), make(pool, blocks[2])
    assert (deep.saved_tokens, shallow.saved_tokens) == (320, 192)
    pool.drop(shallow)
    assert deep.saved_tokens == 512
    pool.check_integrity(blocks)


def test_places_lie_behind_the_running_states_and_are_given_back() -> None:
    pool, blocks = CheckpointPool(10, 2, 100), chain(2)
    made = [make(pool, block) for block in blocks]
    assert {one.state_id for one in made} == {10, 11}
    assert (pool.num_kept, pool.num_places) == (2, 2)
    pool.drop(made[0])
    assert blocks[0].checkpoint is None and pool.num_kept == 1


def test_without_places_nothing_is_kept() -> None:
    assert CheckpointPool(10, 0, 100).make(chain(1)[0], Kind.PROMPT_END) is None


def test_the_one_that_saves_least_makes_room() -> None:
    pool, blocks = CheckpointPool(10, 2, 100), chain(12)
    kept, lost = make(pool, blocks[7]), make(pool, blocks[8])
    assert (kept.saved_tokens, lost.saved_tokens) == (512, 64)
    new = make(pool, blocks[11])
    assert blocks[8].checkpoint is None and pool.num_evicted == 1
    assert new.state_id == lost.state_id
    pool.check_integrity(blocks)


def test_what_many_begin_from_outlives_what_one_has_gone_on_from() -> None:
    pool, blocks, other = CheckpointPool(10, 2, 100), chain(4), chain(8)
    common, once = make(pool, blocks[3]), make(pool, other[7])
    for _ in range(3):
        pool.use(common)
    pool.use(once)
    assert pool.expected_uses(common) > pool.expected_uses(once)
    make(pool, chain(2)[1])
    assert blocks[3].checkpoint is common and other[7].checkpoint is None


def test_kinds_that_are_never_used_are_expected_less_of() -> None:
    pool = CheckpointPool(10, 300, 100)
    for _ in range(40):
        make(pool, chain(1)[0], Kind.OUTPUT)
        pool.use(make(pool, chain(1)[0], Kind.BOUNDARY))
    output, boundary = make(pool, chain(1)[0], Kind.OUTPUT), make(pool, chain(1)[0], Kind.BOUNDARY)
    assert pool.expected_uses(output) < 0.05 and pool.expected_uses(boundary) > 0.9


def test_a_place_that_nobody_knows_of_is_reported() -> None:
    pool, blocks = CheckpointPool(10, 2, 100), chain(1)
    make(pool, blocks[0])
    blocks[0].checkpoint = None
    with pytest.raises(IntegrityError, match="inconsistent"):
        pool.check_integrity(blocks)
