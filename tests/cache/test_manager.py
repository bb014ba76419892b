"""Invariants C1 to C6 of docs/hybrid-cache.md, one by one."""

from __future__ import annotations

import pytest

from qanat.cache.manager import HybridCacheManager, PrefixHit
from qanat.core.errors import IntegrityError
from tests.support.step_loop import make_request, small_spec

NO_HIT = PrefixHit()


def make_cache(num_blocks: int = 9, num_states: int = 3, *, has_states: bool = True) -> HybridCacheManager:
    """Pool sizes include the reserved id 0: 8 blocks of 16 tokens and 2 states can be owned."""
    return HybridCacheManager(small_spec(16, has_states=has_states), num_blocks, num_states)


def test_c1_everything_is_free_at_the_start() -> None:
    cache = make_cache()
    cache.check_integrity()
    assert (cache.num_free_blocks, cache.num_usable_blocks) == (8, 8)
    assert (cache.num_free_states, cache.num_usable_states) == (2, 2)
    assert cache.usage == cache.state_usage == 0.0


def test_admit_gives_blocks_for_the_tokens_and_one_state() -> None:
    cache = make_cache()
    allocation = cache.admit(make_request("a", 33), NO_HIT, 33)
    assert allocation is not None
    assert len(set(allocation.block_ids)) == 3
    assert allocation.state_id in (1, 2)
    assert (cache.num_free_blocks, cache.num_free_states) == (5, 1)
    assert cache.usage == 3 / 8
    assert cache.state_usage == 1 / 2
    cache.check_integrity()


def test_c2_the_reserved_ids_are_never_handed_out() -> None:
    cache = make_cache()
    first = cache.admit(make_request("a", 64), NO_HIT, 64)
    second = cache.admit(make_request("b", 64), NO_HIT, 64)
    assert first is not None and second is not None
    assert sorted(first.block_ids + second.block_ids) == list(range(1, 9))
    assert {first.state_id, second.state_id} == {1, 2}


def test_c3_admit_changes_nothing_when_blocks_do_not_suffice() -> None:
    cache = make_cache()
    assert cache.admit(make_request("a", 129), NO_HIT, 129) is None
    assert (cache.num_free_blocks, cache.num_free_states) == (8, 2)
    cache.check_integrity()


def test_c3_admit_changes_nothing_when_states_do_not_suffice() -> None:
    cache = make_cache(num_states=2)
    assert cache.admit(make_request("a", 16), NO_HIT, 16) is not None
    assert cache.admit(make_request("b", 16), NO_HIT, 16) is None
    assert cache.num_free_blocks == 7
    cache.check_integrity()


def test_c3_extend_is_all_or_nothing() -> None:
    cache = make_cache()
    cache.admit(make_request("a", 64), NO_HIT, 64)
    cache.admit(make_request("b", 32), NO_HIT, 32)
    assert cache.extend("b", 80) is None
    assert cache.num_free_blocks == 2
    new_ids = cache.extend("b", 64)
    assert new_ids is not None and len(new_ids) == 2
    assert cache.extend("b", 64) == []
    cache.check_integrity()


def test_extend_of_a_request_that_owns_nothing_is_an_error() -> None:
    with pytest.raises(KeyError):
        make_cache().extend("a", 16)


def test_c4_release_takes_everything_back_and_is_harmless_when_repeated() -> None:
    cache = make_cache()
    cache.admit(make_request("a", 16), NO_HIT, 16)
    cache.extend("a", 48)
    cache.release("a")
    cache.release("a")
    cache.release("never admitted")
    assert (cache.num_free_blocks, cache.num_free_states) == (8, 2)
    cache.check_integrity()


def test_c4_a_caller_that_changes_its_allocation_does_not_change_what_is_owned() -> None:
    cache = make_cache()
    allocation = cache.admit(make_request("a", 32), NO_HIT, 32)
    assert allocation is not None
    allocation.block_ids.clear()
    cache.check_integrity()
    cache.release("a")
    assert cache.num_free_blocks == 8


def test_c5_blocks_and_states_are_counted_apart() -> None:
    cache = make_cache(num_blocks=2, num_states=100)
    assert (cache.num_usable_blocks, cache.num_usable_states) == (1, 99)


def test_c6_a_hit_that_leaves_nothing_to_compute_is_refused() -> None:
    cache = make_cache()
    with pytest.raises(IntegrityError, match="leaves nothing to compute"):
        cache.admit(make_request("a", 32), PrefixHit(32), 32)
    assert cache.num_free_blocks == 8


def test_lookup_finds_nothing_as_nothing_is_indexed() -> None:
    assert make_cache().lookup(make_request("a", 32)).num_tokens == 0


def test_admitting_twice_is_refused_and_loses_nothing() -> None:
    cache = make_cache()
    cache.admit(make_request("a", 32), NO_HIT, 32)
    with pytest.raises(IntegrityError, match="second time"):
        cache.admit(make_request("a", 32), NO_HIT, 32)
    cache.check_integrity()
    assert cache.num_free_blocks == 6


def test_a_model_without_recurrent_layers_uses_no_states() -> None:
    cache = make_cache(num_states=0, has_states=False)
    allocation = cache.admit(make_request("a", 16), NO_HIT, 16)
    assert allocation is not None and allocation.state_id == 0
    assert cache.num_usable_states == 0
    assert cache.state_usage == 0.0
    cache.check_integrity()
    cache.release("a")
    cache.check_integrity()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda cache: cache._blocks.take(1), "block pool is inconsistent; lost"),
        (lambda cache: cache._states.take(1), "state pool is inconsistent; lost"),
        (
            lambda cache: cache._blocks.give_back([3]),
            r"block pool is inconsistent; held more than once: \[3\]",
        ),
        (lambda cache: cache._blocks.give_back([0]), r"outside the pool: \[0\]"),
        (lambda cache: cache._owned["a"].block_ids.pop(), "lost"),
        (lambda cache: cache._owned["a"].block_ids.append(8), "held more than once"),
    ],
)
def test_check_integrity_notices_every_kind_of_damage(damage: object, message: str) -> None:
    cache = make_cache()
    cache.admit(make_request("a", 33), NO_HIT, 33)
    damage(cache)  # type: ignore[operator]
    with pytest.raises(IntegrityError, match=message):
        cache.check_integrity()
