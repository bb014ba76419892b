"""The one way by which checks look at a machine: commands, files, variables, sockets."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from qanat.config.env import process_variables

MAX_TEXT_BYTES = 4 * 2**20
"""Longer outputs and files are cut."""
TIMEOUT_S = 20.0
"""Time for one command; npu-smi hangs when a driver is broken."""
NOT_RUNNABLE = 127
"""Exit code where a command could not be run at all."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did.

    Attributes:
        exit_code: as the shell has it.
        text: standard output and error together.
        problem: why it did not run to its end.
    """

    exit_code: int = 0
    text: str = ""
    problem: Literal["", "not found", "not allowed", "timed out"] = ""

    @property
    def is_good(self) -> bool:
        """Whether it ran to its end and says so."""
        return not self.problem and self.exit_code == 0


class Host(Protocol):
    """A machine. Nothing here changes it."""

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> Output:
        """Runs a command without a shell; never raises."""

    def read(self, path: str) -> str | None:
        """Text of a file; None if there is none or it may not be read."""

    def names(self, path: str) -> tuple[str, ...] | None:
        """Sorted names in a folder; None if there is none."""

    def exists(self, path: str) -> bool:
        """Whether there is a file, folder or device with this path."""

    def free_bytes(self, path: str) -> int | None:
        """Room on the disk of a path, or of the nearest folder above it that exists; None if it is not known."""

    def bind_error(self, address: str, port: int) -> str | None:
        """Why nobody can listen there, such as "address already in use"; None if it can be done."""

    def resolve(self, name: str) -> tuple[str, ...]:
        """Addresses of a name, sorted; none if it does not resolve."""

    def variables(self) -> Mapping[str, str]:
        """Environment variables."""

    def host_name(self) -> str:
        """Name of the machine."""

    def now_s(self) -> float:
        """Seconds since 1970 by the clock of the machine."""


class ThisHost:
    """The machine that this process runs on."""

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> Output:
        """Runs a command without a shell; never raises."""
        program = shutil.which(words[0]) or _in_usual_folders(words[0])
        if program is None:
            return Output(exit_code=NOT_RUNNABLE, problem="not found")
        try:
            process = subprocess.Popen(
                [program, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**process_variables(), "LC_ALL": "C"},
            )
        except OSError:
            return Output(exit_code=NOT_RUNNABLE, problem="not allowed")
        try:
            text, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Output(exit_code=NOT_RUNNABLE, text=_end(process), problem="timed out")
        return Output(exit_code=process.returncode, text=_decode(text))

    def read(self, path: str) -> str | None:
        """Text of a file; None if there is none or it may not be read."""
        try:
            with open(path, "rb", buffering=0) as file:
                return _decode(_read_pieces(file))
        except OSError:
            return None

    def names(self, path: str) -> tuple[str, ...] | None:
        """Sorted names in a folder; None if there is none."""
        try:
            return tuple(sorted(os.listdir(path)))
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is a file, folder or device with this path."""
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int | None:
        """Room on the disk of a path, or of the nearest folder above it that exists; None if it is not known."""
        folder = Path(path)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            return None

    def bind_error(self, address: str, port: int) -> str | None:
        """Why nobody can listen there, such as "address already in use"; None if it can be done."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as server:
                # Connections of a server that has just ended keep its port for a minute; servers ask for it too.
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind((address, port))
                server.listen(1)
        except OverflowError:
            return "no such port"
        except OSError as error:
            known = {errno.EADDRINUSE: "address already in use", errno.EACCES: "not allowed for this user"}
            known[errno.EADDRNOTAVAIL] = "no such address on this host"
            return known.get(error.errno or 0, error.strerror or str(error))
        return None

    def resolve(self, name: str) -> tuple[str, ...]:
        """Addresses of a name, sorted; none if it does not resolve."""
        try:
            found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError):
            return ()
        return tuple(sorted({str(each[4][0]) for each in found}))

    def variables(self) -> Mapping[str, str]:
        """Environment variables."""
        return process_variables()

    def host_name(self) -> str:
        """Name of the machine."""
        return socket.gethostname()

    def now_s(self) -> float:
        """Seconds since 1970 by the clock of the machine."""
        return time.time()


def _read_pieces(file: io.FileIO) -> bytes:
    """All of a file up to the bound. Files of /proc/sys refuse to be read into a buffer of megabytes."""
    content = bytearray()
    while len(content) < MAX_TEXT_BYTES:
        piece = file.read(2**16)
        if not piece:
            break
        content += piece
    return bytes(content)


def _in_usual_folders(program: str) -> str | None:
    """Tools of the driver are often not on the path of a user who is not root."""
    folders = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/Ascend/driver/tools")
    return shutil.which(program, path=os.pathsep.join(folders))


def _end(process: subprocess.Popen[bytes]) -> str:
    """Ends a command that hangs. One that hangs inside a driver cannot be ended, and is left behind."""
    process.kill()
    try:
        text, _ = process.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        return ""
    return _decode(text)


def _decode(text: bytes) -> str:
    return text[:MAX_TEXT_BYTES].decode("utf-8", errors="replace")
