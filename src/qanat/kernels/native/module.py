"""The compiled module, where there is one, and its settings."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

from qanat.core.errors import ConfigError

try:
    _MODULE: ModuleType | None = importlib.import_module("qanat.kernels.native._module")
    _REASON = ""
except ImportError as error:
    _MODULE = None
    _REASON = str(error)

INSTALL_HINT = "install a C++17 compiler (Debian and Ubuntu: apt-get install g++) and install qanat again"


def is_built() -> bool:
    """True if the compiled module is there and can be loaded."""
    return _MODULE is not None


def why_not() -> str:
    """Why the module is not there, and what to do; empty if it is."""
    return f"the native kernels are not built ({_REASON}): {INSTALL_HINT}" if _MODULE is None else ""


def native() -> ModuleType:
    """The compiled module.

    Raises:
        ConfigError: it is not built.
    """
    if _MODULE is None:
        raise ConfigError(why_not())
    return _MODULE


def instruction_sets() -> list[str]:
    """What this processor has and the module was built for, worst first; empty without the module."""
    return list(_MODULE.instruction_sets()) if _MODULE is not None else []


def check_instruction_set(name: str) -> None:
    """Refuses one that there is no code for on this processor; the empty name stands for the best.

    Raises:
        ConfigError: with those that there are.
    """
    known = instruction_sets()
    if name and name not in known:
        raise ConfigError(
            f"QANAT_ISA={name}: there are native kernels for {', '.join(known)} on this processor; "
            "choose one of them, or reference for the torch kernels, or unset it"
        )


def configure(num_threads: int, instruction_set: str = "", cpus: tuple[int, ...] = ()) -> None:
    """Chooses the code to run and starts the threads anew; does nothing without the module.

    Args:
        num_threads: threads that compute, the caller's counted.
        instruction_set: one of `instruction_sets()`, the best if empty.
        cpus: processors that the threads are pinned to; the first stands for the caller's thread, which is left alone.

    Raises:
        ConfigError: this processor does not have that instruction set, or the system gives no such number of threads;
            all stays as it was then.
    """
    if _MODULE is None:
        return
    check_instruction_set(instruction_set)
    try:
        _MODULE.configure(instruction_set, num_threads, list(cpus))
    except RuntimeError as error:
        raise ConfigError(
            f"--num-threads {num_threads}: the system does not start so many threads here ({error}); choose fewer, or "
            "raise the limit of processes (ulimit -u, the container's pids)"
        ) from error


@dataclass(frozen=True)
class PoolWaits:
    """What the jobs of one op have cost since `count_pool_waits(True)`.

    Attributes:
        num_jobs: calls of the pool.
        num_shared: of them, those offered to other threads.
        elapsed_s: time of the thread that called.
        wait_s: of it, time in which that thread had nothing left to compute and others had not finished.
        busy_s: time that all threads computed.
    """

    num_jobs: int
    num_shared: int
    elapsed_s: float
    wait_s: float
    busy_s: float


def count_pool_waits(is_counting: bool) -> None:
    """Whether the jobs of the threads are timed; switching it on begins anew, and so does `configure`."""
    native().count_pool_waits(is_counting)


def pool_waits() -> dict[str, PoolWaits]:
    """What was counted, by function of the module that gave the jobs."""
    return {
        name: PoolWaits(jobs, shared, elapsed * 1e-9, wait * 1e-9, busy * 1e-9)
        for name, (jobs, shared, elapsed, wait, busy) in native().pool_waits().items()
    }
