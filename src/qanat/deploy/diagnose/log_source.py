"""Where a log comes from: a file (packed or not), standard input, or a container."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from qanat.core.errors import ConfigError
from qanat.deploy.diagnose.writers import has_writer
from qanat.deploy.text_files import require_regular

STANDARD_INPUT = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_TOOLS = ("docker", "podman", "nerdctl")
INSPECT_TIMEOUT_S = 20.0
IDLE_TIMEOUT_S = 60.0
"""So long a container's tool may give nothing."""
FRESH_S = 300.0
"""A file that was written so lately may still be written: starts are silent for minutes."""


@dataclass(frozen=True)
class LogSource:
    """A log: its name in reports, and where its bytes are (`kind` file, stdin or container)."""

    name: str
    kind: str

    def may_grow(self) -> bool:
        """Whether more may be written to it.

        The container runs; or the file was written a short while ago, and has a writer as far as can be seen.
        """
        if self.kind == "container":
            return _inspected(self.name, "{{.State.Running}}") == "true"
        if self.kind == "stdin":
            return False
        try:
            is_fresh = time.time() - os.stat(self.name).st_mtime < FRESH_S
        except OSError:
            return False
        return is_fresh and has_writer(self.name) is not False

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The log's bytes, unpacked.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.kind == "stdin":
            yield sys.stdin.buffer
        elif self.kind == "container":
            with _container_log(self.name) as stream:
                yield stream
        else:
            try:
                with Path(self.name).open("rb") as file:
                    is_packed = file.read(2) == _GZIP_MAGIC
                    file.seek(0)
                    yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_packed else file
            except OSError as error:
                raise ConfigError(f"{self.name} cannot be read: {error.strerror or error}") from None


def source_of(word: str) -> LogSource:
    """The source that a word of the command line names.

    Raises:
        ConfigError: there is no such file, or it is a folder, a pipe or a device.
    """
    if word == STANDARD_INPUT:
        return LogSource("<stdin>", "stdin")
    path = Path(word)
    if path.is_dir():
        raise ConfigError(f"{word} is a folder; name the log files in it, e.g. {word.rstrip('/')}/*.log.")
    require_regular(path)
    return LogSource(word, "file")


def container_source(name: str) -> LogSource:
    """The log of a container, by name or id."""
    return LogSource(name, "container")


def container_image(name: str) -> str | None:
    """The image that a container runs; None if its tool does not say."""
    return _inspected(name, "{{.Config.Image}}")


def _inspected(name: str, field: str) -> str | None:
    """A field of a container's description; None if there is none, or its tool does not say it in time."""
    with _running([_tool(), "inspect", "--format", field, name], subprocess.DEVNULL) as process:
        try:
            text = process.communicate(timeout=INSPECT_TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            return None
        return text.decode(errors="replace").strip() or None if process.returncode == 0 else None


def _tool() -> str:
    for tool in _TOOLS:
        if shutil.which(tool):
            return tool
    raise ConfigError(
        f"--docker needs one of {', '.join(_TOOLS)} on this host; or save the log and name the file.",
        param="--docker",
    )


@contextlib.contextmanager
def _running(command: list[str], errors: int) -> Iterator[subprocess.Popen[bytes]]:
    """A tool that runs no longer than the context, with all that it has started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def _container_log(name: str) -> Iterator[IO[bytes]]:
    command = [_tool(), "logs", name]
    words = " ".join(command)
    with _running(command, subprocess.STDOUT) as process:
        if process.stdout is None:
            raise ConfigError(f"{words} gave nothing.", param="--docker")
        yield cast(IO[bytes], _Patient(process.stdout.fileno(), words))
        try:
            code = process.wait(IDLE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise _silent(words) from None
    if code != 0:
        raise ConfigError(
            f"{words} failed with exit code {code}: is {name} a container of this host?", param="--docker"
        )


class _Patient(io.RawIOBase):
    """A pipe of which no reading waits longer than `IDLE_TIMEOUT_S`."""

    def __init__(self, descriptor: int, words: str) -> None:
        self._descriptor = descriptor
        self._words = words

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size` of them; none at the end."""
        if not select.select([self._descriptor], [], [], IDLE_TIMEOUT_S)[0]:
            raise _silent(self._words)
        return os.read(self._descriptor, size if size > 0 else 1 << 16)


def _silent(words: str) -> ConfigError:
    return ConfigError(
        f"{words} gave nothing for {IDLE_TIMEOUT_S:g} s, and was ended: does the container tool answer? "
        "Save the log and name the file.",
        param="--docker",
    )
