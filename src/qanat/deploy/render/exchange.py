"""Several files replaced as one: prepared beside, exchanged, and put back where anything fails.

While files are exchanged, a journal in a folder beside them says what was there before. A run that was killed leaves
it behind, and the next one puts everything back before it begins.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

STAGING = ".qanat-render.new"
_JOURNAL = "journal.json"


class Exchange:
    """Changes to a folder that are made together.

    Args:
        folder: exists; every path is inside of it, with slashes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staging = folder / STAGING
        self._contents: dict[str, tuple[bytes, bool]] = {}
        self._removed: list[str] = []

    def put(self, path: str, content: bytes, is_executable: bool) -> None:
        """Makes or replaces a file."""
        self._contents[path] = (content, is_executable)

    def remove(self, path: str) -> None:
        """Takes a file away, and folders that are empty then."""
        self._removed.append(path)

    def commit(self) -> None:
        """Makes all changes; nothing is touched if there are none.

        Raises:
            OSError: a file cannot be written; all files are as they were.
        """
        if not self._contents and not self._removed:
            return
        try:
            self._prepare()
            self._replace()
        except BaseException:
            recover(self.folder)
            raise
        (self.staging / _JOURNAL).unlink()
        shutil.rmtree(self.staging, ignore_errors=True)
        for path in self._removed:
            _remove_empty(self.folder, path)

    def _prepare(self) -> None:
        """New files and copies of old ones, and at last the journal, which makes them count."""
        self.staging.mkdir()
        for path, (content, is_executable) in self._contents.items():
            staged = self.staging / "new" / path
            staged.parent.mkdir(parents=True, exist_ok=True)
            _write(staged, content)
            staged.chmod(0o755 if is_executable else 0o644)
        before = [path for path in (*self._contents, *self._removed) if (self.folder / path).exists()]
        for path in before:
            backup = self.staging / "old" / path
            backup.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.folder / path, backup)
        new = [path for path in self._contents if path not in before]
        _write(self.staging / "journal.new", json.dumps({"old": before, "new": new}).encode("utf-8"))
        os.replace(self.staging / "journal.new", self.staging / _JOURNAL)

    def _replace(self) -> None:
        for path in self._contents:
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.staging / "new" / path, target)
        for path in self._removed:
            (self.folder / path).unlink()


def recover(folder: Path) -> None:
    """Puts back what an exchange that did not end has changed; does nothing where there was none.

    Raises:
        OSError: it cannot be put back; the copies stay where they are.
    """
    staging = folder / STAGING
    if not staging.is_dir() or staging.is_symlink():
        return
    journal = staging / _JOURNAL
    if journal.exists():
        entries = json.loads(journal.read_text(encoding="utf-8"))
        for path in entries["old"]:
            if (staging / "old" / path).exists():
                os.replace(staging / "old" / path, folder / path)
        for path in entries["new"]:
            (folder / path).unlink(missing_ok=True)
            _remove_empty(folder, path)
        journal.unlink()
    shutil.rmtree(staging)


def _remove_empty(folder: Path, path: str) -> None:
    """Removes the folders above a path that hold nothing any more."""
    above = (folder / path).parent
    while above != folder:
        with suppress(OSError):
            above.rmdir()
        above = above.parent


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
