"""The cache on disk, with real files and real processes."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.cache_entry import EntryError, check_pieces, read_index, write_entry
from qanat.core.cache_folder import BAD, NEW, PACKED, CachedFile, CacheFolder, CacheRefusedError
from qanat.core.private_folder import folder_problem, free_bytes

KEY = "a" * 64
OTHER = "b" * 64
THIRD = "c" * 64


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "packed")


def store(folder: CacheFolder, key: str = KEY, pieces: tuple[bytes, ...] = (b"one", b"two" * 5000)) -> int:
    views = [memoryview(piece) for piece in pieces]
    sizes = [len(piece) for piece in pieces]
    return folder.store(key, views, sizes, made_by="test", label="a model", description={"n": len(pieces)})


def contents(folder: CacheFolder, key: str = KEY) -> list[bytes]:
    entry = folder.open(key)
    assert entry is not None
    found = [
        os.pread(entry.descriptor, size, start)
        for start, size in zip(entry.index.starts(), entry.index.sizes, strict=True)
    ]
    os.close(entry.descriptor)
    return found


@given(pieces=st.lists(st.binary(max_size=9000), max_size=5), cut=st.integers(1, 500), place=st.integers(0))
def test_what_was_written_is_read_and_every_change_of_a_byte_is_found(
    pieces: list[bytes], cut: int, place: int
) -> None:
    with tempfile.TemporaryFile() as file:
        size = write_entry(
            file.fileno(), map(memoryview, pieces), key=KEY, made_by="", label="", description=None
        )
        index = read_index(file.fileno(), KEY)
        assert index.sizes == [len(piece) for piece in pieces]
        assert [
            os.pread(file.fileno(), length, start)
            for start, length in zip(index.starts(), index.sizes, strict=True)
        ] == pieces
        check_pieces(file.fileno(), index)
        with pytest.raises(EntryError):
            read_index(file.fileno(), OTHER)
        inside = [
            start + at for start, n in zip(index.starts(), index.sizes, strict=True) for at in (0, n - 1) if n
        ]
        end = index.starts()[-1] + index.sizes[-1] if pieces else 0
        places = [*inside, *range(end, size - 8)]  # the last eight bytes are filling
        at = places[place % len(places)]
        before = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([before[0] ^ 1]), at)
        with pytest.raises(EntryError):
            check_pieces(file.fileno(), read_index(file.fileno(), KEY))
        os.ftruncate(file.fileno(), max(0, size - cut))
        with pytest.raises(EntryError):
            read_index(file.fileno(), KEY)


def test_a_stored_entry_is_private_whole_and_found_again(folder: CacheFolder) -> None:
    assert folder.open(KEY) is None
    assert store(folder) > 15003
    assert contents(folder) == [b"one", b"two" * 5000]
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path_of(KEY).stat().st_mode & 0o077 == 0
    assert [each.path.name for each in folder.files()] == [f"{KEY}{PACKED}"]
    assert store(folder) == 0  # it is never written again


def test_what_the_writer_left_of_the_same_entry_takes_no_room(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "packed", max_bytes=100_000)
    folder.path.mkdir(mode=0o700)
    (folder.path / f"{KEY}{NEW}").write_bytes(bytes(95_000))
    assert store(folder) > 15003
    assert contents(folder)[0] == b"one"


def test_a_place_that_cannot_be_looked_at_is_a_problem(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / ("long" * 100) / "packed")
    assert "cannot be looked at" in folder_problem(folder.path)
    assert free_bytes(folder.path) == 0


def test_a_damaged_entry_is_set_aside_and_can_be_made_again(folder: CacheFolder) -> None:
    store(folder)
    with folder.path_of(KEY).open("r+b") as file:
        file.truncate(100)
    with pytest.raises(EntryError, match="damaged"):
        folder.open(KEY)
    assert [each.path.suffix for each in folder.files()] == [BAD]
    assert folder.open(KEY) is None
    store(folder)
    assert contents(folder)[0] == b"one"


def test_damage_that_a_start_does_not_see_is_found_by_reading_all(folder: CacheFolder) -> None:
    store(folder)
    store(folder, OTHER)
    with folder.path_of(KEY).open("r+b") as file:
        file.write(b"X")
    entry = folder.open(KEY)
    assert entry is not None
    os.close(entry.descriptor)
    num_bytes = []
    problems = {each.path.stem: problem for each, problem in folder.verify(num_bytes.append)}
    assert problems == {KEY: "its weights are damaged", OTHER: ""}
    assert sum(num_bytes) == 2 * 15003
    assert folder.open(KEY) is None


def test_the_longest_unused_goes_first_and_what_is_in_use_stays(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "packed", max_bytes=50_000)
    for age, key in enumerate((KEY, OTHER)):
        store(folder, key)
        os.utime(folder.path_of(key), (1000 + age, 1000 + age))
    in_use = folder.open(KEY)  # the oldest, and yet it stays
    assert in_use is not None
    os.utime(folder.path_of(KEY), (1, 1))
    store(folder, THIRD)
    assert {each.path.stem for each in folder.files()} == {KEY, THIRD}
    with pytest.raises(CacheRefusedError, match="--cache-max-bytes"):
        store(folder, OTHER, (bytes(40_000),))
    assert {each.path.stem for each in folder.files()} == {KEY, THIRD}, "nothing is removed in vain"
    os.close(in_use.descriptor)
    store(folder, OTHER, (bytes(40_000),))
    assert {each.path.stem for each in folder.files()} == {OTHER}


def test_clearing_removes_ours_alone_and_a_mapped_entry_stays_readable(folder: CacheFolder) -> None:
    store(folder)
    (folder.path / f"{OTHER}{BAD}").write_bytes(b"damaged")
    for name in ("notes.txt", f"{KEY}.other", f"{'g' * 64}{PACKED}"):
        (folder.path / name).write_text("not ours")
    (folder.path / f"{THIRD}{PACKED}").symlink_to(folder.path / "notes.txt")
    entry = folder.open(KEY)
    assert entry is not None
    gone = folder.clear()
    assert {(each.path.name, each.is_in_use) for each in gone} == {
        (f"{KEY}{PACKED}", True),
        (f"{OTHER}{BAD}", False),
    }
    assert len(list(folder.path.iterdir())) == 4
    check_pieces(entry.descriptor, entry.index)
    os.close(entry.descriptor)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_a_folder_that_is_open_to_others_is_refused(folder: CacheFolder, mode: int) -> None:
    store(folder)
    folder.path.chmod(mode)
    assert "chmod 700" in folder_problem(folder.path)
    for use in (lambda: folder.open(KEY), lambda: store(folder, OTHER)):
        with pytest.raises(CacheRefusedError, match="open to others"):
            use()


def test_a_folder_of_somebody_else_a_file_and_a_link_are_refused(
    folder: CacheFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(folder)
    target = tmp_path / "target"
    target.write_bytes(folder.path_of(KEY).read_bytes())
    folder.path_of(OTHER).symlink_to(target)
    with pytest.raises(CacheRefusedError, match="cannot be opened"):
        folder.open(OTHER)
    (tmp_path / "file").write_text("")
    assert "is no folder" in folder_problem(tmp_path / "file")
    assert "no home" in folder_problem(Path("~/.cache"))
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert "belongs to another user" in folder_problem(folder.path)


def test_a_full_disk_leaves_nothing_behind(folder: CacheFolder) -> None:
    """The bound on the size of files stands for the disk: the write fails in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(CacheRefusedError, match="File too large"):
            store(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.files() == []


def lock(path: Path, how: int) -> int:
    """As another process would: locks belong to the opened file, not to who opened it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, how)
    return descriptor


@pytest.mark.parametrize("is_removed", [False, True])
def test_who_looks_at_an_unfinished_file_or_removes_it_keeps_no_writer_away(
    is_removed: bool, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.path.mkdir(0o700)
    fresh = folder.path / f"{KEY}{NEW}"
    other = [lock(fresh, fcntl.LOCK_EX if is_removed else fcntl.LOCK_SH)]

    def go_on(_: float) -> None:
        if is_removed and other:
            fresh.unlink()
        while other:
            os.close(other.pop())

    monkeypatch.setattr(time, "sleep", go_on)  # the other one goes on while the writer waits
    assert store(folder) > 0
    assert contents(folder)[0] == b"one" and not fresh.exists()


def test_looking_at_an_unfinished_file_is_seen_by_nobody_else_who_looks(folder: CacheFolder) -> None:
    folder.path.mkdir(0o700)
    descriptor = lock(folder.path / f"{KEY}{NEW}", fcntl.LOCK_SH)
    assert [each.is_in_use for each in folder.files()] == [False]
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert [each.is_in_use for each in folder.files()] == [True]
    os.close(descriptor)


class LookedAt(CacheFolder):
    """A writer takes its file just after it was found to be nobody's."""

    def files(self) -> list[CachedFile]:
        found = super().files()
        if not hasattr(self, "writer"):
            self.writer = lock(self.path / f"{OTHER}{NEW}", fcntl.LOCK_EX)
        return found


@pytest.mark.parametrize("is_clearing", [False, True])
def test_an_unfinished_file_goes_only_if_nobody_writes_it_at_that_moment(
    is_clearing: bool, tmp_path: Path
) -> None:
    folder = LookedAt(tmp_path / "packed")
    folder.path.mkdir(0o700)
    fresh = folder.path / f"{OTHER}{NEW}"
    fresh.write_bytes(b"half")
    if is_clearing:
        assert folder.clear() == []
    else:
        store(folder)
    assert fresh.exists()
    os.close(folder.writer)
    folder.clear()
    assert not fresh.exists()


def test_an_unfinished_file_of_others_is_never_published_nor_removed(folder: CacheFolder) -> None:
    """As somebody who clears the folder by hand would do it in the middle of writing."""
    fresh = folder.path / f"{KEY}{NEW}"

    def pieces() -> Iterator[memoryview]:
        yield memoryview(b"one")
        fresh.unlink()
        fresh.write_bytes(b"half")
        yield memoryview(b"two")

    with pytest.raises(CacheRefusedError, match="removed while it was written"):
        folder.store(KEY, pieces(), [3, 3], made_by="", label="", description=None)
    assert folder.open(KEY) is None and fresh.read_bytes() == b"half"


WRITER = """
import os, sys
from pathlib import Path
from qanat.core.cache_folder import CacheFolder
folder = CacheFolder(Path(sys.argv[1]))
def pieces():
    yield memoryview(bytes(1000))
    print("writing", flush=True)
    sys.stdin.readline()
    yield memoryview(bytes(1000))
print(folder.store("a" * 64, pieces(), [1000, 1000], made_by="", label="", description=None), flush=True)
"""


@pytest.fixture
def writer(folder: CacheFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of writing the entry."""
    command = [sys.executable, "-c", WRITER, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_two_processes_never_write_twice_nor_read_a_half(
    folder: CacheFolder, writer: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert folder.open(KEY) is None
    assert store(folder) == 0  # it is left to the other one
    assert "another process writes it" in caplog.text
    assert folder.clear() == []
    out, _ = writer.communicate("go\n", timeout=60)
    assert int(out) > 2000
    assert contents(folder) == [bytes(1000), bytes(1000)]


def test_what_a_killed_writer_left_is_no_entry_and_goes_away(
    folder: CacheFolder, writer: subprocess.Popen[str]
) -> None:
    writer.kill()
    writer.wait(60)
    assert [each.path.suffix for each in folder.files()] == [NEW]
    assert folder.open(KEY) is None
    store(folder, OTHER)
    assert {each.path.name for each in folder.files()} == {f"{OTHER}{PACKED}"}
    store(folder)
    assert contents(folder)[0] == b"one"
