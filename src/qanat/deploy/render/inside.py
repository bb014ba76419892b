"""Paths that are said to be inside of a folder: refused where they are not."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from qanat.core.errors import ConfigError


def check_inside(record: Path, path: str) -> None:
    """Refuses a record that would have files elsewhere replaced or removed.

    Args:
        record: the file that names the path.
        path: relative, with slashes.

    Raises:
        ConfigError: the path does not lead to a file of the folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\0" in path:
        raise ConfigError(f"{record} is damaged: {path!r} is no file of this folder; remove it.")


def refuse_links(folder: Path, path: str) -> None:
    """Refuses a path that leads out of the folder, or through something that is no folder.

    Raises:
        ConfigError: a part of the path is a symbolic link, or a file where a folder should be.
    """
    at = folder
    parts = PurePosixPath(path).parts
    for number, part in enumerate(parts):
        at = at / part
        if at.is_symlink():
            raise ConfigError(
                f"{at} is a symbolic link; a deployment's folder holds real files only. Remove it."
            )
        if number < len(parts) - 1 and at.exists() and not at.is_dir():
            raise ConfigError(f"{at} is a file where a folder has to be; move it away.")
