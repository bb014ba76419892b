"""Writes a deployment's folder: all of it or nothing of it, and nothing that is not its own."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qanat.core.errors import ConfigError
from qanat.deploy.render.env_file import keep_edits
from qanat.deploy.render.exchange import Exchange, digest_of, recover
from qanat.deploy.render.inside import check_inside, refuse_links
from qanat.deploy.render.model import Files, RenderedFile

MARKER = ".qanat-render.json"
"""Digests of what was rendered into a folder: they tell own files from those of others, and edited from fresh ones."""
FORMAT = 1
State = Literal["new", "changed", "unchanged", "kept", "removed", "left"]
"""Of a file: `kept` holds edits of a person, `left` is no longer part of the deployment and was edited."""


@dataclass(frozen=True)
class Change:
    """What becomes of a file.

    Attributes:
        path: inside the folder.
        state: see `State`.
        note: what a person should know about it; empty if nothing.
    """

    path: str
    state: State
    note: str = ""


@dataclass(frozen=True)
class _Outcome:
    change: Change
    content: bytes | None
    is_executable: bool = False


def write_folder(
    folder: Path, files: Files, *, is_overwriting: bool = False, is_dry_run: bool = False
) -> list[Change]:
    """Makes a folder hold these files, and returns what became of each, in order of paths.

    Files that are right already are not touched. Files of others stay. Files of an earlier rendering that are not
    among these go, unless they were edited. Where anything fails, the folder is as it was.

    Args:
        folder: made if it is not there.
        files: what `render` returned.
        is_overwriting: also replace files that were edited, or that others made under a name of these.
        is_dry_run: only tell.

    Raises:
        ConfigError: the folder cannot be written; a file would be replaced that is not as it was rendered, and
            `is_overwriting` is not set; or a path leads through a symbolic link.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file; name a folder.")
        if is_dry_run:
            return [one.change for one in _outcomes(folder, files, is_overwriting)]
        with _locked(folder):
            outcomes = _outcomes(folder, files, is_overwriting, recover(folder))
            _exchange(folder, files, outcomes)
            return [one.change for one in outcomes]
    except OSError as error:
        where = error.filename if error.filename is not None else folder
        raise ConfigError(
            f"{where} cannot be written: {error.strerror or error}; the folder is as it was."
        ) from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps a second rendering away from the folder; takes a folder that was made for it away if that fails."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another rendering writes {folder} at this moment; wait for it.") from None
        yield
    except BaseException:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()
        raise
    finally:
        os.close(handle)


def _outcomes(
    folder: Path, files: Files, is_overwriting: bool, recovered: Mapping[str, str] | None = None
) -> list[_Outcome]:
    """What becomes of each file; `recovered` are digests of files that an interrupted rendering wrote."""
    recorded = {**(recovered or {}), **_read_marker(folder)}
    found, refused = [], []
    for path, file in files.items():
        refuse_links(folder, path)
        outcome = _outcome(folder / path, path, file, recorded.get(path), is_overwriting)
        if outcome is None:
            refused.append(path)
        else:
            found.append(outcome)
    if refused:
        listed = ", ".join(sorted(refused))
        raise ConfigError(
            f"{folder} holds files that are not as they were rendered: {listed}. Move them away, or give --overwrite.",
            param="--overwrite",
        )
    for path, digest in recorded.items():
        if path not in files:
            refuse_links(folder, path)
            found += _stale(folder / path, path, digest)
    return sorted(found, key=lambda one: one.change.path)


def _outcome(
    target: Path, path: str, file: RenderedFile, recorded: str | None, is_overwriting: bool
) -> _Outcome | None:
    """What becomes of one file; None if it must not be replaced."""
    wanted = file.text.encode("utf-8")
    if not target.exists():
        return _Outcome(Change(path, "new"), wanted, file.is_executable)
    if not target.is_file():
        raise ConfigError(f"{target} is not a file; move it away.")
    there = target.read_bytes()
    is_executable = os.access(target, os.X_OK)
    if there == wanted and is_executable is file.is_executable:
        return _Outcome(Change(path, "unchanged"), None)
    if there == wanted or digest_of(there) == recorded:
        return _Outcome(Change(path, "changed"), wanted, file.is_executable)
    if file.is_edited_by_hand and recorded is not None:
        return _merged(path, there, file)
    return _Outcome(Change(path, "changed"), wanted, file.is_executable) if is_overwriting else None


def _merged(path: str, there: bytes, file: RenderedFile) -> _Outcome:
    text, notes = keep_edits(there.decode("utf-8", "surrogateescape"), file.text)
    content = text.encode("utf-8", "surrogateescape")
    note = "; ".join(["edited by hand", *notes])
    return _Outcome(Change(path, "kept", note), None if content == there else content, file.is_executable)


def _stale(target: Path, path: str, digest: str) -> Iterator[_Outcome]:
    if not target.is_file():
        return
    if digest_of(target.read_bytes()) == digest:
        yield _Outcome(Change(path, "removed", "no longer part of the deployment"), None)
    else:
        yield _Outcome(Change(path, "left", "no longer part of the deployment, and edited by hand"), None)


def _exchange(folder: Path, files: Files, outcomes: list[_Outcome]) -> None:
    exchange = Exchange(folder)
    for one in outcomes:
        if one.content is not None:
            exchange.put(one.change.path, one.content, one.is_executable)
        elif one.change.state == "removed":
            exchange.remove(one.change.path)
    digests = {path: digest_of(file.text.encode("utf-8")) for path, file in sorted(files.items())}
    marker = (json.dumps({"format": FORMAT, "files": digests}, indent=1) + "\n").encode("utf-8")
    target = folder / MARKER
    if not target.is_file() or target.read_bytes() != marker:
        exchange.put(MARKER, marker, False)
    exchange.commit()


def _read_marker(folder: Path) -> dict[str, str]:
    """The digests of an earlier rendering by path; empty without one."""
    target = folder / MARKER
    if target.is_symlink():
        raise ConfigError(f"{target} is a symbolic link; remove it.")
    if not target.is_file():
        return {}
    try:
        content = json.loads(target.read_text(encoding="utf-8"))
        files = {str(path): str(digest) for path, digest in content["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{target} is damaged; remove it, or choose another folder.") from None
    if content.get("format") != FORMAT:
        raise ConfigError(f"{target} was written by another version of Qanat; choose another folder.")
    for path in files:
        check_inside(target, path)
    return files
