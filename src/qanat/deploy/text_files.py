"""Text files: read with an error that says what is wrong, replaced in one step."""

from __future__ import annotations

import codecs
import contextlib
import os
import stat
import tempfile
from pathlib import Path

from qanat.core.errors import ConfigError


def require_regular(path: Path, param: str | None = None) -> None:
    """Refuses what may never end: devices and pipes.

    Args:
        path: of a file, or a link to one.
        param: flag that names it, for the error.

    Raises:
        ConfigError: it is there and no regular file, or it cannot be looked at.
    """
    name = f"{param} {path}" if param else str(path)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no path"
        raise ConfigError(f"{name} cannot be read: {reason.lower()}", param=param) from None
    if stat.S_ISREG(mode):
        return
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"
    raise ConfigError(
        f"{name} cannot be read: it is {kind}, no file; save its content to a file first, or where standard input "
        "is read (-), give it there.",
        param=param,
    )


def read_text(path: Path, param: str | None = None) -> str:
    """The text of a file in UTF-8.

    Args:
        path: of the file.
        param: flag that names it, for the error.

    Raises:
        ConfigError: it cannot be read, or is no text.
    """
    require_regular(path, param)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else "it is no text in UTF-8"
        name = f"{param} {path}" if param else str(path)
        raise ConfigError(f"{name} cannot be read: {reason}", param=param) from None


def read_file(path: Path) -> str:
    """A file's text: UTF-8 (bytes that are none are kept as they are), or UTF-16 if it begins with its mark.

    Raises:
        OSError: it cannot be read.
    """
    return decode(path.read_bytes())


def decode(data: bytes) -> str:
    """Bytes as text, as `read_file` does."""
    encoding = _encoding(data)
    return data.decode(encoding, errors="surrogateescape" if encoding == "utf-8" else "replace")


def _encoding(data: bytes) -> str:
    return "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"


def rewrite_file(path: Path, text: str) -> None:
    """Replaces the content of a file that is there, in the encoding it has; text is as `read_file` gives it.

    Raises:
        OSError: it cannot be written; the file is as it was.
        UnicodeEncodeError: so is the file.
    """
    with path.open("rb") as before:
        encoding = _encoding(before.read(2))
    replace_file(path, text.encode(encoding, errors="surrogateescape" if encoding == "utf-8" else "strict"))


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file in one step: readers see the old one or the new one. The mode of an old one is kept.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    target = path.resolve()
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
