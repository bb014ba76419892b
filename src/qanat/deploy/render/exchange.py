"""Several files replaced as one: prepared beside, exchanged, and put back where anything fails.

While files are exchanged, a journal in a folder beside them says what was there before and what comes in its place. A
run that was killed leaves it behind, and the next one puts everything back before it begins, but what a person has
changed meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from qanat.core.errors import ConfigError
from qanat.deploy.render.inside import check_inside, refuse_links

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
        digests = {path: digest_of(content) for path, (content, _) in self._contents.items()}
        journal = {
            "old": {path: digests.get(path, "") for path in before},
            "new": {path: digest for path, digest in digests.items() if path not in before},
        }
        _write(self.staging / "journal.new", json.dumps(journal).encode("utf-8"))
        os.replace(self.staging / "journal.new", self.staging / _JOURNAL)

    def _replace(self) -> None:
        for path in self._contents:
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.staging / "new" / path, target)
        for path in self._removed:
            (self.folder / path).unlink()


def recover(folder: Path) -> dict[str, str]:
    """Puts back what an exchange that did not end has changed; does nothing where there was none.

    Returns:
        Files that stay because somebody has changed them since, with the digests of what the exchange had written.

    Raises:
        ConfigError: the journal is damaged, or a path leads out of the folder; nothing was touched.
        OSError: it cannot be put back; the copies stay where they are.
    """
    staging = folder / STAGING
    if not staging.is_dir() or staging.is_symlink():
        return {}
    journal = staging / _JOURNAL
    edited: dict[str, str] = {}
    if journal.exists():
        old, new = _read_journal(journal)
        for path in (*old, *new):
            refuse_links(folder, path)
            refuse_links(staging / "old", path)
        for path, digest in old.items():
            if _is_edited(folder / path, staging / "old" / path, digest):
                edited[path] = digest
            elif (staging / "old" / path).exists():
                os.replace(staging / "old" / path, folder / path)
        for path, digest in new.items():
            if _is_edited(folder / path, None, digest):
                edited[path] = digest
            else:
                (folder / path).unlink(missing_ok=True)
                _remove_empty(folder, path)
        journal.unlink()
    shutil.rmtree(staging)
    return edited


def _read_journal(journal: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of what was to be written, of files that were there before and of others."""
    try:
        content = json.loads(journal.read_text(encoding="utf-8"))
        old, new = dict(content["old"].items()), dict(content["new"].items())
        is_right = all(isinstance(digest, str) for digest in (*old.values(), *new.values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        is_right = False
    if not is_right:
        raise ConfigError(
            f"{journal} is damaged; look what the folder {journal.parent} holds of earlier files, and remove it."
        )
    for path in (*old, *new):
        check_inside(journal, path)
    return old, new


def _is_edited(target: Path, backup: Path | None, digest: str) -> bool:
    """Whether a file is neither what it was nor what was to come."""
    if not target.is_file():
        return False
    there = target.read_bytes()
    return digest_of(there) != digest and (
        backup is None or not backup.exists() or there != backup.read_bytes()
    )


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


def digest_of(content: bytes) -> str:
    """The digest by which a content is known again."""
    return hashlib.sha256(content).hexdigest()
