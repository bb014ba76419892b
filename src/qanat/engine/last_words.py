"""What the core's process says when it is stuck or dies: a file beside its sockets, which the front end reads.

The C code of `faulthandler` writes it, so the main thread may be anywhere: in a loop, in a library that holds the
interpreter's lock, or in a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

FILE_NAME = "last-words"
STACKS_SIGNAL = signal.SIGUSR1
STACKS_TIMEOUT_S = 3.0
POLL_S = 0.05
MAX_BYTES = 32_768
"""So much of the end of the file is read."""


@contextlib.contextmanager
def last_words(folder: Path) -> Iterator[None]:
    """In the core: leaves stacks when a signal asks, when the process crashes, and of an error that ends the block."""
    with open(folder / FILE_NAME, "a") as file:
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
        faulthandler.enable(file=file, all_threads=True)
        try:
            yield
        except Exception as error:
            logger.critical("The engine process fails.", exc_info=error)
            with contextlib.suppress(OSError):  # a full disk must not hide the error itself
                file.write("".join(traceback.format_exception(error)[-4:]))
            raise
        finally:
            faulthandler.unregister(STACKS_SIGNAL)
            faulthandler.disable()
            with contextlib.suppress(OSError):
                file.close()


def read_last_words(folder: Path, start: int = 0) -> str:
    """In the front end: what stands in the file from this byte on, or its end if that is much; "" if there is none."""
    try:
        with open(folder / FILE_NAME, "rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(start, size_bytes - MAX_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


async def ask_for_stacks(folder: Path, pid: int) -> str:
    """In the front end: the present stacks of all threads of the core, or why there are none."""
    path = folder / FILE_NAME
    try:
        start = before = path.stat().st_size
        os.kill(pid, STACKS_SIGNAL)
        deadline = time.monotonic() + STACKS_TIMEOUT_S
        while time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
            now = path.stat().st_size
            if now > start and now == before:  # it has said something, and nothing more since the last look
                return read_last_words(folder, start)
            before = now
    except OSError as error:
        return f"(no stacks: {error.strerror})"
    return f"(no stacks within {STACKS_TIMEOUT_S:.0f} s: the process is {_state(pid)})"


def describe_exit(code: int) -> str:
    """How a process ended, from its return code as `subprocess` has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def _state(pid: int) -> str:
    """What the system says the process does."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    names = {"T": "stopped (SIGSTOP)", "t": "stopped by a debugger", "D": "waiting for a device", "Z": "gone"}
    return names.get(letter, f"in state {letter}")
