"""A profile's files: names, rights, and how each is written so that no half of one is left behind."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from qanat.core.errors import ProfileWriteError

CHUNK_BYTES = 2**20
TORCH_MARK = b'"traceName"'
"""The last key of a file that torch has written to its end."""
MAX_TAIL_BYTES = 8192

_counter = itertools.count(1)


class ProfileFiles:
    """Writes into one folder, which is made for this user alone if it is not there.

    Names consist of the time, the process and a counter; nothing of them comes from a request.

    Args:
        folder: absolute path.
        is_compressed: compress with gzip.
        rank: of the process among those that share the model; None if it is alone.

    Raises:
        ProfileWriteError: the folder cannot be made or written to.
    """

    def __init__(self, folder: str, is_compressed: bool, rank: int | None = None) -> None:
        self._folder = Path(folder)
        self._is_compressed = is_compressed
        now = datetime.datetime.now(datetime.UTC)
        place = f"-rank{rank}" if rank is not None else ""
        self._stem = f"qanat-{now:%Y%m%dT%H%M%SZ}-{os.getpid()}-{next(_counter)}{place}"
        with self._explained():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            trial = self._folder / f"{self._stem}.part"
            self._new_file(trial.name).close()
            trial.unlink()

    def write(self, kind: str, chunks: Iterator[bytes]) -> str:
        """Writes a file; returns its path.

        Args:
            kind: what it holds, part of its name.
            chunks: its content.

        Raises:
            ProfileWriteError: there is no room, or no right.
        """
        ending = ".json.gz" if self._is_compressed else ".json"
        target = self._folder / f"{self._stem}.{kind}{ending}"
        part = self._folder / f"{self._stem}.{kind}.part"
        with self._explained(part):
            with contextlib.ExitStack() as stack:
                out = stack.enter_context(self._new_file(part.name))
                if self._is_compressed:
                    out = stack.enter_context(gzip.open(out, "wb", compresslevel=3))
                for chunk in chunks:
                    out.write(chunk)
            part.rename(target)  # not before the last bytes have left: a full disk may show only then
        return str(target)

    def write_by_name(self, kind: str, save: Callable[[str], None]) -> str:
        """Writes a file that other code saves under a path it is given; that code may not say that it failed.

        Raises:
            ProfileWriteError: there is no room, or no right.
        """
        aside = self._folder / f"{self._stem}.{kind}.aside"
        try:
            with self._explained():
                aside.mkdir(mode=0o700)
                save(str(aside / kind))
                with (aside / kind).open("rb") as file:
                    self._check_end(file)
                    return self.write(kind, iter(lambda: file.read(CHUNK_BYTES), b""))
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _new_file(self, name: str) -> IO[bytes]:
        """A file that was not there before, for this user alone; never through a link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.fdopen(os.open(self._folder / name, flags, 0o600), "wb")

    def _check_end(self, file: IO[bytes]) -> None:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - MAX_TAIL_BYTES))
        tail = file.read().rstrip()
        file.seek(0)
        if TORCH_MARK not in tail or not tail.endswith(b"}"):
            raise ProfileWriteError(
                f"torch's profile could not be written to {self._folder} as a whole; is there room on the disk?"
            )

    @contextlib.contextmanager
    def _explained(self, *unfinished: Path) -> Iterator[None]:
        """Turns what the system says into our error, and removes what was not finished."""
        try:
            yield
        except BaseException as error:
            for path in unfinished:
                with contextlib.suppress(OSError):
                    path.unlink()
            if isinstance(error, OSError):
                raise ProfileWriteError(
                    f"Profiles cannot be written to {self._folder} (torch_profiler_dir): "
                    f"{error.strerror or error}."
                ) from error
            raise
