"""Compiling one form in a process of its own, which may be killed at any moment."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

from qanat.core.errors import QanatError, StructuredOutputError
from qanat.structured.backend import Backend
from qanat.structured.budget import TOO_COMPLEX
from qanat.structured.compile_messages import Compile, Compiled, FromCompiler, Refused, Setup, framed
from qanat.structured.library import said_by_library
from qanat.structured.threads import MAX_JOB_STACK_BYTES
from qanat.structured.trial import try_out

NICENESS = 10
"""Who compiles gives way to who computes tokens."""

TOO_DEEP = (
    "The form is nested too deeply, or its rules or references lead on to others too many times. Flatten it."
)

DEATH_SIGNAL = 1
"""Linux' `PR_SET_PDEATHSIG`: the signal that a process gets when its parent ends."""


@dataclass(frozen=True)
class Bench:
    """What every job needs, made once.

    Attributes:
        backend: compiles.
        num_mask_words: size of a mask.
        eos_ids: tokens that end an output.
    """

    backend: Backend
    num_mask_words: int
    eos_ids: list[int]


def fork_job(bench: Bench, setup: Setup, job: Compile) -> tuple[int, int]:
    """Starts a job.

    Returns:
        The process, and the end of a pipe that will carry one framed answer; nothing if the process dies.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _stand_alone(parent, writing)
            _limit(setup)
            _write(writing, framed(answer(bench, setup, job)))
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's is flushed or closed twice
    os.close(writing)
    return pid, reading


def answer(bench: Bench, setup: Setup, job: Compile) -> FromCompiler:
    """Translates, compiles and tries a form."""
    try:
        grammar = bench.backend.grammar(job.params)
        _check_size(grammar, setup)
        try_out(bench.backend.compile(grammar).matcher(), bench.num_mask_words, bench.eos_ids)
        return Compiled(job.job_id, grammar)
    except QanatError as error:
        return Refused(job.job_id, error.message, error.param)
    except MemoryError:
        return out_of_memory(job.job_id, setup)
    except RecursionError:
        return Refused(job.job_id, TOO_DEEP)
    except Exception as error:  # whatever a library makes of a stranger's grammar is an answer, not a crash
        return Refused(job.job_id, f"The form cannot be compiled: {said_by_library(str(error))}")
    except BaseException:  # a panic in a library
        return Refused(job.job_id, TOO_COMPLEX)


def out_of_time(job_id: int, setup: Setup) -> Refused:
    """The answer for a job that was killed at its time limit."""
    message = (
        f"Compiling the form took longer than {setup.timeout_s:g} s "
        "(--structured-outputs-config.compile_timeout_s). Simplify it."
    )
    return Refused(job_id, message, is_overrun=True)


def out_of_memory(job_id: int, setup: Setup) -> Refused:
    """The answer for a job that died of its memory limit."""
    message = (
        f"Compiling the form took more than {setup.max_memory_bytes / 2**20:,.0f} MiB "
        "(--structured-outputs-config.max_compile_memory_bytes). Simplify it."
    )
    return Refused(job_id, message, is_overrun=True)


def after_death(job_id: int, setup: Setup, status: int) -> Refused:
    """The answer for a job that ended without one; a library that gets no memory aborts."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGXCPU:
        return out_of_time(job_id, setup)
    if number == signal.SIGSEGV:
        return Refused(job_id, TOO_DEEP)
    if number in (signal.SIGABRT, signal.SIGBUS):
        return out_of_memory(job_id, setup)
    return Refused(job_id, "Compiling the form was broken off. Try again.", is_overrun=True)


def _check_size(grammar: str, setup: Setup) -> None:
    """What is small as a form may be large as a grammar, which the engine's process has to hold."""
    size_bytes = len(grammar.encode())
    if size_bytes > setup.max_grammar_bytes:
        raise StructuredOutputError(
            f"The form's grammar is {size_bytes:,} bytes long; at most {setup.max_grammar_bytes:,} are taken "
            "(--structured-outputs-config.max_grammar_bytes). Simplify the form."
        )


def _stand_alone(parent: int, writing: int) -> None:
    """Whoever waits for the parent's end must not wait for the job's: it holds none of its lines, and dies with it."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (writing, 2):
            with contextlib.suppress(OSError):
                os.close(int(name))
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _limit(setup: Setup) -> None:
    """The parent's own limits do not reach here if it is killed: time is bounded by the kernel too."""
    os.nice(NICENESS)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    most = used_bytes + setup.max_memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    seconds = math.ceil(setup.timeout_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stack_bytes, most_stack_bytes = resource.getrlimit(resource.RLIMIT_STACK)
    if stack_bytes == resource.RLIM_INFINITY or stack_bytes > MAX_JOB_STACK_BYTES:
        resource.setrlimit(resource.RLIMIT_STACK, (MAX_JOB_STACK_BYTES, most_stack_bytes))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
