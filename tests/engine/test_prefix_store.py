"""The prefix cache on disk with real files and real tensors: what comes back is what was computed, or nothing.

A model is stood for by a hash of the tokens, which is written where keys, values and states would be.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.cache.manager import HybridCacheManager
from qanat.cache.prefix_cache import PrefixRules
from qanat.cache.prefix_stats import PrefixStats
from qanat.core.prefix_entry import PrefixIdentity, PrefixOrder
from qanat.core.prefix_folder import PrefixFolder
from qanat.engine.prefix_store import PrefixStore
from qanat.platforms.groups import SingleGroup
from qanat.worker.cache_tensors import allocate_cache
from qanat.worker.prefix_files import PrefixFiles
from tests.support.step_loop import make_request, small_spec

NUM_STATES = 3
IDENTITY = {"model": "m", "kernels": "native"}


class Engine:
    """A cache with its tensors and its store, without a model."""

    def __init__(
        self,
        path: Path,
        *,
        num_blocks: int = 40,
        num_checkpoints: int = 12,
        has_states: bool = True,
        max_bytes: int | None = None,
        identity: dict[str, str] = IDENTITY,
    ) -> None:
        self.spec = small_spec(16, has_states=has_states)
        rules = PrefixRules(num_checkpoints=num_checkpoints)
        self.cache = HybridCacheManager(self.spec, num_blocks + 1, NUM_STATES, rules)
        self.tensors = allocate_cache(
            self.spec, num_blocks + 1, NUM_STATES + num_checkpoints if has_states else 0
        )
        folder = PrefixFolder(path, PrefixIdentity(identity), "test")
        self.files = PrefixFiles(folder, self.tensors, SingleGroup())
        exchange = self.cache.exchange()
        assert exchange is not None
        self.store = PrefixStore(exchange, folder, self, max_bytes)  # type: ignore[arg-type]
        self.store.load()
        self.cache.check_integrity()

    @property
    def is_keeping(self) -> bool:
        return self.files.is_writing

    def keep(self, order: PrefixOrder) -> bool:
        return self.files.obey(order)

    @property
    def stats(self) -> PrefixStats:
        return self.store.stats(self.cache.prefix_stats())

    def ask(self, tokens: list[int], salt: str = "") -> int:
        """Computes a prompt; returns how many of its tokens were found, after a look at what was found."""
        request = make_request("r", tokens, cache_salt=salt)
        hit = self.cache.lookup(request)
        for number, block in enumerate(hit.blocks):
            expected = noise([salt, *tokens[: (number + 1) * 16]], self.block(block.block_id))
            assert torch.equal(self.block(block.block_id), expected)
        allocation = self.cache.admit(request, hit, len(tokens))
        assert allocation is not None
        self.copy()
        if hit.num_tokens and self.spec.has_states:
            state = self.tensors.recurrent_states[0][allocation.state_id]
            assert torch.equal(state, noise([salt, *tokens[: hit.num_tokens]], state))
        request.num_computed_tokens = hit.num_tokens
        while request.num_computed_tokens < len(tokens):
            start = request.num_computed_tokens
            end = len(tokens)
            kept = self.cache.keep_on_the_way("r", start, end)
            for number in range(start // 16, len(allocation.block_ids)):
                block = self.block(allocation.block_ids[number])
                block.copy_(noise([salt, *tokens[: (number + 1) * 16]], block))
            if self.spec.has_states:
                state = self.tensors.recurrent_states[0][allocation.state_id]
                state.copy_(noise([salt, *tokens[:end]], state))
                for position, state_id in kept:
                    place = self.tensors.recurrent_states[0][state_id]
                    place.copy_(noise([salt, *tokens[:position]], place))
            request.num_computed_tokens = end
            self.cache.advance(request)
            self.copy()
        self.cache.release(request.request_id)
        self.store.news()
        self.cache.check_integrity()
        return hit.num_tokens

    def block(self, block_id: int) -> Tensor:
        return self.tensors.kv_blocks[0][:, block_id]

    def copy(self) -> None:
        for copy in self.cache.take_copies():
            states = self.tensors.recurrent_states[0]
            states[copy.target].copy_(states[copy.source])


def noise(what: list[object], like: Tensor) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:8], "little") >> 1
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(seed))


def prompt(family: int, length: int = 150) -> list[int]:
    return [(7 * place + family) % 90 for place in range(length)]


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prefix"))


@pytest.mark.parametrize("has_states", [True, False])
def test_what_was_computed_is_found_after_a_restart(tmp_path: Path, has_states: bool) -> None:
    folder = tmp_path / "kept"
    first = Engine(folder, has_states=has_states)
    assert first.ask(prompt(1)) == 0
    assert first.ask(prompt(1)[:100] + [3] * 50) == (0 if has_states else 96), (
        "where they part a state is kept now"
    )
    assert first.ask(prompt(1)) > 0
    first.store.finish(None)
    assert oct(folder.stat().st_mode)[-3:] == "700"
    assert first.stats.num_written_entries == first.stats.num_stored_entries == len(kept(folder))
    assert first.stats.stored_bytes > 0
    second = Engine(folder, has_states=has_states)
    assert second.stats.num_loaded_entries == first.stats.num_stored_entries
    if not has_states:  # else blocks behind the last state are left out: nothing could begin there
        assert second.stats.num_blocks == first.stats.num_blocks
    assert second.stats.num_checkpoints == first.stats.num_checkpoints
    assert second.ask(prompt(1), "salt") == 0, "another salt shares nothing, on disk as in memory"
    assert second.ask(prompt(1)) == (128 if has_states else 144)
    assert second.ask(prompt(1)[:100] + [3] * 50) == (128 if has_states else 144)
    names, times = [path.name for path in kept(folder)], [path.stat().st_ino for path in kept(folder)]
    second.store.finish(None)
    again = kept(folder)
    assert [path.stat().st_ino for path in again if path.name in names] == times, "no file is written twice"


@settings(max_examples=25)
@given(
    st.integers(0, 2**32), st.booleans(), st.integers(12, 40), st.integers(1, 8), st.integers(20_000, 300_000)
)
def test_random_prompts_and_restarts_within_the_bound(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    has_states: bool,
    num_blocks: int,
    num_checkpoints: int,
    max_bytes: int,
) -> None:
    folder, chance = tmp_path_factory.mktemp("kept"), random.Random(seed)
    folder.chmod(0o700)
    for _ in range(3):
        engine = Engine(
            folder,
            num_blocks=num_blocks,
            num_checkpoints=num_checkpoints,
            has_states=has_states,
            max_bytes=max_bytes,
        )
        assert engine.stats.num_dropped_entries == 0
        for _ in range(4):
            tokens = prompt(chance.randrange(2), chance.choice([40, 80, 130, 180]))
            engine.ask(tokens + [chance.randrange(90) for _ in range(chance.choice([0, 5]))])
            if chance.random() < 0.5:
                engine.store.write_next()
        engine.store.finish(None)
        assert sum(path.stat().st_size for path in kept(folder)) <= max_bytes
        assert engine.stats.num_stored_entries == len(kept(folder))
        if chance.random() < 0.3 and kept(folder):
            chance.choice(kept(folder)).unlink()
            Engine(folder, has_states=has_states)  # drops what has begun from it


@pytest.mark.parametrize("harm", ["cut short", "empty", "one bit", "end", "swapped"])
def test_a_damaged_file_is_dropped_by_name_and_made_again(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    first = Engine(folder)
    first.ask(prompt(1))
    first.ask(prompt(2))
    first.store.finish(None)
    victim, other = kept(folder)[:2]
    data = bytearray(victim.read_bytes())
    if harm == "one bit":
        data[100] ^= 4
    elif harm == "end":
        data[-50] ^= 4
    elif harm == "swapped":
        data = bytearray(other.read_bytes())
    victim.write_bytes(data[: {"cut short": len(data) // 2, "empty": 0}.get(harm, len(data))])
    caplog.clear()
    second = Engine(folder)
    assert victim.name in caplog.text
    assert not victim.exists()
    assert second.stats.num_dropped_entries >= 1
    assert second.stats.num_loaded_entries < first.stats.num_stored_entries
    second.ask(prompt(1))
    second.ask(prompt(2))
    second.store.finish(None)
    assert victim.exists()
    third = Engine(folder)
    assert (third.ask(prompt(1)), third.ask(prompt(2))) == (128, 128)


def test_other_models_are_refused_and_left_until_their_room_is_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    first = Engine(folder)
    first.ask(prompt(1))
    first.store.finish(None)
    num_files, size_bytes = len(kept(folder)), sum(path.stat().st_size for path in kept(folder))
    (folder / "stranger.prefix").write_text("mine")
    (folder / f"{'a' * 64}-s1-{'b' * 16}-0of1.new").write_text("left by one that was killed")
    caplog.set_level(logging.WARNING)
    other = Engine(folder, identity={"model": "m", "kernels": "reference"}, max_bytes=size_bytes + 30_000)
    assert f"{num_files} entries" in caplog.text
    assert "made with another kernels" in caplog.text
    assert "stranger.prefix is no file of the prefix cache" in caplog.text
    assert other.stats.num_dropped_entries == num_files + 1
    assert (other.stats.num_loaded_entries, other.stats.num_stored_entries) == (0, 0)
    assert not list(folder.glob("*.new"))
    assert other.ask(prompt(1)) == 0
    other.store.finish(None)
    assert other.stats.num_stored_entries > 0
    assert (folder / "stranger.prefix").read_text() == "mine"
    assert Engine(folder).stats.num_loaded_entries < num_files


def test_a_folder_that_cannot_be_written_costs_nothing_but_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    engine = Engine(folder)
    engine.ask(prompt(1))
    os.rmdir(folder)
    engine.store.finish(None)
    assert "A prefix is not kept on disk" in caplog.text
    assert engine.stats.num_stored_entries == 0
    assert engine.ask(prompt(1)) == 128


def test_what_is_cleared_is_gone_from_the_disk(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "kept")
    engine.ask(prompt(1))
    engine.store.finish(None)
    assert kept(tmp_path / "kept")
    engine.cache.forget_prefixes()
    engine.store.clear()
    engine.store.finish(None)
    assert not kept(tmp_path / "kept")
    assert engine.stats.num_stored_entries == 0
