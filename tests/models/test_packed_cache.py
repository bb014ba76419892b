"""Packed weights from one start to the next: fewer bytes read, the same bits, and no start that fails for them."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.core.cache_entry import EntryError
from qanat.core.cache_folder import BAD, PACKED, CacheFolder, OpenEntry
from qanat.kernels.native import module
from qanat.kernels.packing import is_packed
from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import REFERENCE
from qanat.models import packed_key
from qanat.models.decoder import CausalLM
from qanat.models.huge_pages import copy_in_background
from qanat.models.loader import LoadReport, load_model
from qanat.models.packed_cache import WRITER_NAME, PackedCache
from qanat.platforms.groups import PlannedGroup
from tests.models.tiny import FAMILIES, write_checkpoint
from tests.support.forward import ForwardRunner
from tests.support.quantised_checkpoints import FORMATS, quantise_folder

TIED = next(family for family in FAMILIES if family.name == "qwen3_5-vision_tied")
EXPERTS = next(family for family in FAMILIES if family.name == "qwen3_moe-per_expert")
FLOAT_DOWN, FLOAT_UP = r"\.0\.mlp\.experts.*down_proj", r"\.0\.mlp\.experts.*(gate|up)_proj"


@pytest.fixture(autouse=True)
def native_kernels() -> Iterator[None]:
    if not module.is_built():
        pytest.skip(module.why_not())
    choose_providers(1)
    yield
    choose_providers(1, REFERENCE)


@pytest.fixture
def cache(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "packed")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    write_checkpoint(EXPERTS, tmp_path / "model", torch.bfloat16)
    return tmp_path / "model"


def start(
    folder: Path,
    cache: CacheFolder | None,
    dtype: torch.dtype = torch.bfloat16,
    group: PlannedGroup | None = None,
    quantization: str | None = None,
) -> tuple[CausalLM, LoadReport]:
    """Loads, and waits until what is to be kept is written."""
    config = ModelConfig.from_folder(folder)
    loaded = load_model(folder, config, dtype, "cpu", group=group, quantization=quantization, cache=cache)
    for thread in threading.enumerate():
        if thread.name == WRITER_NAME:
            thread.join()
    return loaded


def answer(model: CausalLM) -> Tensor:
    return torch.cat(ForwardRunner(model).step([("a", range(5, 40)), ("b", [7])]))


def names(cache: CacheFolder) -> list[str]:
    return [each.path.name for each in cache.files()]


@pytest.mark.parametrize("family", [TIED, EXPERTS], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_second_start_reads_no_matrix_and_answers_alike(
    family: object, dtype: torch.dtype, tmp_path: Path, cache: CacheFolder
) -> None:
    (tmp_path / "model").mkdir()
    write_checkpoint(family, tmp_path / "model", torch.bfloat16)  # type: ignore[arg-type]
    first, cold = start(tmp_path / "model", cache, dtype)
    second, warm = start(tmp_path / "model", cache, dtype)
    assert cold.kept is None and warm.kept is not None
    assert "mapped packed" in str(warm) and "mapped packed" not in str(cold)
    # What is left: norms and small vectors, and the embedding of the untied family, which rows are read from.
    left = sum(parameter.nbytes for parameter in second.parameters())
    embedding = second.model.embed_tokens
    table = getattr(embedding, "weight", None)
    table_bytes = 0 if table is None or is_packed(table) else table.nbytes
    assert warm.read_bytes <= left < 0.1 * cold.read_bytes + table_bytes
    assert torch.equal(answer(first), answer(second))
    assert first.size_bytes() == second.size_bytes()


@pytest.mark.parametrize("quantization", ["w8a8", "w4a8"])
def test_quantised_weights_are_kept_apart_and_answer_alike(
    quantization: str, checkpoint: Path, cache: CacheFolder
) -> None:
    start(checkpoint, cache)
    first, cold = start(checkpoint, cache, quantization=quantization)
    second, warm = start(checkpoint, cache, quantization=quantization)
    assert cold.kept is None and warm.kept is not None
    assert warm.kept.size_bytes < 0.7 * sum(each.size_bytes for each in cache.files()[:1])
    assert torch.equal(answer(first), answer(second))
    assert len(names(cache)) == 2


@pytest.mark.parametrize("is_float", [FLOAT_DOWN, FLOAT_UP], ids=["float-down", "float-up"])
def test_experts_that_are_packed_in_part_are_read_again(
    is_float: str, checkpoint: Path, cache: CacheFolder, tmp_path: Path
) -> None:
    """In fp16 a stack of floats is not packed, and stands beside the packed one as a parameter that no file names."""
    int8 = next(form for form in FORMATS if form.name == "ascend-W8A8_DYNAMIC")
    quantise_folder(checkpoint, tmp_path / "mixed", int8, lambda matrix: re.search(is_float, matrix) is None)
    first, cold = start(tmp_path / "mixed", cache, torch.float16)
    second, warm = start(tmp_path / "mixed", cache, torch.float16)
    assert cold.kept is None and warm.kept is not None
    assert torch.equal(answer(first), answer(second))


def test_a_copy_on_huge_pages_answers_alike(checkpoint: Path, cache: CacheFolder) -> None:
    first, _ = start(checkpoint, cache)
    second, report = start(checkpoint, cache)
    assert report.kept is not None
    before = [weight.address for weight in report.kept.weights]
    expected = answer(second)
    copy_in_background(report.kept, lambda: "the test says so").join()
    assert [weight.address for weight in report.kept.weights] == before
    copy_in_background(report.kept, lambda: "").join()
    assert not set(before) & {weight.address for weight in report.kept.weights}
    assert torch.equal(answer(second), expected) and torch.equal(answer(first), expected)


def test_each_rank_and_type_has_its_own_and_another_checkpoint_none(
    checkpoint: Path, cache: CacheFolder
) -> None:
    start(checkpoint, cache)
    for group in (PlannedGroup(0, 2), PlannedGroup(1, 2)):
        start(checkpoint, cache, group=group)
    start(checkpoint, cache, torch.float32)
    assert len(names(cache)) == 4
    for group in (PlannedGroup(0, 2), PlannedGroup(1, 2)):
        assert start(checkpoint, cache, group=group)[1].kept is not None
    path = checkpoint / "model.safetensors"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert start(checkpoint, cache)[1].kept is None
    tensors = load_file(path)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    model, report = start(checkpoint, cache)
    assert report.kept is None
    assert torch.equal(answer(model), answer(start(checkpoint, None)[0]))


def test_weights_made_by_other_rules_are_made_again(
    checkpoint: Path, cache: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(checkpoint, cache, quantization="w4a8")
    monkeypatch.setattr(packed_key, "recipe_digest", lambda: "of another rounding")
    assert start(checkpoint, cache, quantization="w4a8")[1].kept is None
    assert len(names(cache)) == 2


def test_other_weights_with_the_same_times_and_sizes_are_not_served(
    checkpoint: Path, cache: CacheFolder
) -> None:
    """As two images have them that were built with fixed times."""
    path = checkpoint / "model.safetensors"
    os.utime(path, ns=(0, 0))
    start(checkpoint, cache)
    size_bytes, tensors = path.stat().st_size, load_file(path)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    os.utime(path, ns=(0, 0))
    assert path.stat().st_size == size_bytes
    model, report = start(checkpoint, cache)
    assert report.kept is None
    assert torch.equal(answer(model), answer(start(checkpoint, None)[0]))


@pytest.mark.parametrize("damage", ["truncated", "end", "empty"])
def test_a_damaged_entry_is_made_again_with_a_warning(
    damage: str, checkpoint: Path, cache: CacheFolder, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = start(checkpoint, cache)
    [entry] = cache.files()
    with entry.path.open("r+b") as file:
        if damage == "end":
            file.seek(-200, os.SEEK_END)
            file.write(b"?")
        else:
            file.truncate(entry.size_bytes // 2 if damage == "truncated" else 0)
    model, report = start(checkpoint, cache)
    assert report.kept is None and "made again" in caplog.text
    assert sorted(Path(name).suffix for name in names(cache)) == [BAD, PACKED]
    assert start(checkpoint, cache)[1].kept is not None
    assert torch.equal(answer(model), answer(first))


def test_an_entry_that_does_not_go_with_the_model_is_made_again(
    checkpoint: Path, cache: CacheFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a defect would leave one: right by itself, under the key of another model."""
    start(checkpoint, cache)
    [entry] = cache.files()
    opened = cache.open(entry.path.stem)
    assert opened is not None
    layers = opened.index.description
    for wrong in ([{**layers[0], "name": "model.nowhere"}, *layers[1:]], layers[:-1], [{"name": 5}]):
        cache.clear()
        pieces = [
            memoryview(os.pread(opened.descriptor, size, at))
            for at, size in zip(opened.index.starts(), opened.index.sizes, strict=True)
        ]
        cache.store(entry.path.stem, pieces, opened.index.sizes, made_by="", label="", description=wrong)
        caplog.clear()
        assert start(checkpoint, cache)[1].kept is None
        assert "made again" in caplog.text
    os.close(opened.descriptor)


class OvertakenFolder(CacheFolder):
    """Another process makes a damaged entry again before this one has heard that it is damaged."""

    def __init__(self, path: Path, checkpoint: Path) -> None:
        super().__init__(path)
        self._checkpoint = checkpoint
        self.made = 0

    def open(self, key: str) -> OpenEntry | None:
        try:
            return super().open(key)
        except EntryError:
            start(self._checkpoint, CacheFolder(self.path))
            self.made = self.path_of(key).stat().st_ino
            raise


def test_an_entry_that_others_made_again_is_not_set_aside(checkpoint: Path, cache: CacheFolder) -> None:
    start(checkpoint, cache)
    [entry] = cache.files()
    os.truncate(entry.path, 100)
    overtaken = OvertakenFolder(cache.path, checkpoint)
    assert start(checkpoint, overtaken)[1].kept is None
    assert sorted(Path(name).suffix for name in names(cache)) == [BAD, PACKED]
    assert entry.path.stat().st_ino == overtaken.made
    assert start(checkpoint, cache)[1].kept is not None


def held(cache: CacheFolder) -> set[str]:
    """What this process has open of the folder's files: the descriptors with their paths."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # others are closed meanwhile
            if (path := os.readlink(descriptor)).startswith(str(cache.path)):
                found.add(f"{descriptor.name} {path}")
    return found


def test_an_entry_that_cannot_be_read_is_not_held(checkpoint: Path, cache: CacheFolder) -> None:
    piece = memoryview(bytes(64))
    start(checkpoint, cache)
    [entry] = cache.files()
    cache.clear()
    cache.store(entry.path.stem, [piece], [64], made_by="", label="", description=[{"name": 5}])
    before = held(cache)
    assert PackedCache(cache, entry.path.stem, "").open([]) is None
    assert held(cache) <= before
    assert [(each.path.suffix, each.is_in_use) for each in cache.files()] == [(BAD, False)]


def test_no_room_and_no_rights_mean_no_cache_and_a_line_in_the_log(
    checkpoint: Path, cache: CacheFolder, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        start(checkpoint, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "not kept for the next start" in caplog.text and "File too large" in caplog.text
    assert names(cache) == []
    caplog.clear()
    start(checkpoint, CacheFolder(cache.path, max_bytes=1000))
    assert "--cache-max-bytes" in caplog.text and names(cache) == []
    cache.path.chmod(0o755)
    caplog.clear()
    start(checkpoint, cache)
    assert "chmod 700" in caplog.text and names(cache) == []


def test_kernels_that_pack_nothing_neither_write_nor_read(checkpoint: Path, cache: CacheFolder) -> None:
    choose_providers(1, REFERENCE)
    start(checkpoint, cache)
    assert names(cache) == []
    choose_providers(1)
    start(checkpoint, cache)
    choose_providers(1, REFERENCE)
    assert start(checkpoint, cache)[1].kept is None


def test_what_is_kept_is_the_same_on_every_instruction_set(checkpoint: Path, cache: CacheFolder) -> None:
    choose_providers(1, "scalar")
    expected = answer(start(checkpoint, cache)[0])
    choose_providers(1)
    model, report = start(checkpoint, cache)
    assert report.kept is not None and torch.equal(answer(model), expected)
