"""Where a log comes from: a file (packed or not), standard input, or a container."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from qanat.core.errors import ConfigError

STANDARD_INPUT = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_TOOLS = ("docker", "podman", "nerdctl")


@dataclass(frozen=True)
class LogSource:
    """A log: its name in reports, and where its bytes are (`kind` file, stdin or container)."""

    name: str
    kind: str

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
        ConfigError: there is no such file.
    """
    if word == STANDARD_INPUT:
        return LogSource("<stdin>", "stdin")
    path = Path(word)
    if path.is_dir():
        raise ConfigError(f"{word} is a folder; name the log files in it, e.g. {word.rstrip('/')}/*.log.")
    if not path.exists():
        raise ConfigError(f"{word} cannot be read: no such file.")
    return LogSource(word, "file")


def container_source(name: str) -> LogSource:
    """The log of a container, by name or id."""
    return LogSource(name, "container")


def container_image(name: str) -> str | None:
    """The image that a container runs; None if its tool does not say."""
    command = [_tool(), "inspect", "--format", "{{.Config.Image}}", name]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _tool() -> str:
    for tool in _TOOLS:
        if shutil.which(tool):
            return tool
    raise ConfigError(
        f"--docker needs one of {', '.join(_TOOLS)} on this host; or save the log and name the file.",
        param="--docker",
    )


@contextlib.contextmanager
def _container_log(name: str) -> Iterator[IO[bytes]]:
    command = [_tool(), "logs", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        stream = process.stdout
        if stream is None:
            raise ConfigError(f"{' '.join(command)} gave nothing.", param="--docker")
        yield stream
    if process.returncode != 0:
        raise ConfigError(
            f"{' '.join(command)} failed with exit code {process.returncode}: is {name} a container of this host?",
            param="--docker",
        )
