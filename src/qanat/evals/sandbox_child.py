"""The process in which a program of a model runs.

It is started as a script, knows nothing of the rest of the package, and takes away from itself what a program that
computes something has no use for: network, other processes, files.

Reads a JSON object from standard input, writes what holds as one line of JSON, then runs the program.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterator
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_NETWORK, NEW_IPC = 0x10000000, 0x40000000, 0x08000000
SET_NO_NEW_PRIVILEGES, SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls of Landlock, the same on every architecture."""
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, TRUNCATE, DEVICE_CONTROL = 1, 2, 4, 8, 1 << 14, 1 << 15
RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Bits of the rights to files that a version of Landlock knows."""
READABLE = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/urandom",
    "/dev/zero",
    "/proc/self",
)
CLONE_THREAD = 0x10000
DENIED = {
    "x86_64": (
        0xC000003E,
        56,
        (57, 58, 59, 322, 41, 62, 200, 234, 129, 297, 424, 101, 425, 272, 308, 165, 310, 311, 321),
    ),
    "aarch64": (
        0xC00000B7,
        220,
        (221, 281, 198, 129, 130, 131, 138, 240, 424, 117, 425, 97, 268, 40, 270, 271, 280),
    ),
}
"""Of an architecture: its mark, its clone, and the calls that are refused: fork, vfork, execve, execveat, socket, kill,
tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal, ptrace, io_uring_setup, unshare, setns, mount,
process_vm_readv, process_vm_writev, bpf."""
CLONE3 = 435
REFUSED, NOT_THERE, ALLOWED = 0x00050000 | 1, 0x00050000 | 38, 0x7FFF0000
"""What becomes of a call: EPERM, ENOSYS (the C library then takes the older call), or nothing."""


def limit(limits: dict[str, int]) -> None:
    """Bounds of CPU seconds, memory, sizes of files, open files."""
    wanted = {**limits, "RLIMIT_CORE": 0}
    for name, value in wanted.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def leave_network() -> bool:
    """A network namespace of its own, in which there is nothing; needs the right to make user namespaces, or root."""
    return any(LIBC.unshare(kinds | NEW_NETWORK | NEW_IPC) == 0 for kinds in (NEW_USER, 0))


def keep_files(folder: str) -> bool:
    """Reads the interpreter and the system's libraries only, writes into `folder` only (Landlock)."""
    version = LIBC.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    every = (1 << RIGHTS_OF_ABI.get(version, 16)) - 1
    attributes = struct.pack("=QQQ", every, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = LIBC.syscall(CREATE_RULESET, attributes, size, 0)
    if rules < 0:
        return False
    readable = {*READABLE, sys.prefix, sys.base_prefix, *(path for path in sys.path if path)}
    rights = dict.fromkeys(readable, READ_FILE | READ_FOLDER | EXECUTE)
    rights |= {folder: every, "/dev/null": READ_FILE | WRITE_FILE}
    for path, allowed in rights.items():
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not os.path.isdir(path):
            allowed &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL
        LIBC.syscall(ADD_RULE, rules, 1, struct.pack("=Qi", allowed & every, handle), 0)
        os.close(handle)
    is_held = LIBC.syscall(RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return bool(is_held)


def refuse_calls() -> bool:
    """No processes, sockets, signals to others: a filter of system calls (seccomp)."""
    if platform.machine() not in DENIED:
        return False
    program = b"".join(struct.pack("=HBBI", *one) for one in _filter(*DENIED[platform.machine()]))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    whole = Program(len(program) // 8, program)
    return bool(LIBC.prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(whole), 0, 0) == 0)


def _filter(mark: int, clone: int, denied: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Instructions of the classic packet filter: code, jump if true, jump if false, operand."""
    load, equal, at_least, has_bits, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    yield load, 0, 0, 4
    yield equal, 1, 0, mark
    yield answer, 0, 0, REFUSED
    yield load, 0, 0, 0
    yield at_least, 0, 1, 0x40000000  # the x32 calls of x86-64
    yield answer, 0, 0, REFUSED
    for number in denied:
        yield equal, 0, 1, number
        yield answer, 0, 0, REFUSED
    yield equal, 0, 1, CLONE3  # its flags lie in memory, where a filter cannot look
    yield answer, 0, 0, NOT_THERE
    yield equal, 0, 3, clone
    yield load, 0, 0, 16
    yield has_bits, 1, 0, CLONE_THREAD
    yield answer, 0, 0, REFUSED
    yield answer, 0, 0, ALLOWED


def main() -> None:
    """Locks itself up and runs the program."""
    order: dict[str, Any] = json.load(sys.stdin)
    os.chdir(order["folder"])
    held = {"network": leave_network()}
    LIBC.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    held["files"] = keep_files(order["folder"])
    held["processes"] = refuse_calls()
    held["network"] = held["network"] or held["processes"]
    limit(order["limits"])
    os.write(3, json.dumps(held).encode() + b"\n")
    exec(compile(order["source"], "<answer>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    sys.stdout.flush()
    os.write(3, order["end_mark"].encode())


if __name__ == "__main__":
    main()
