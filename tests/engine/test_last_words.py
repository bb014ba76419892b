"""What a process says when it is stuck or dies, from real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qanat.engine.last_words import ask_for_stacks, describe_exit, read_last_words
from tests.support.stopped import stopped

PROGRAM = """
import ctypes, sys, time, logging
from pathlib import Path
from qanat.engine.last_words import last_words

def in_python():
    while True:
        pass

def in_c_with_the_lock():
    while True:  # the signal ends the call
        ctypes.PyDLL(None).sleep(1000)

def asleep():
    time.sleep(1000)

def fails():
    raise ValueError("the reason")

def crashes():
    ctypes.string_at(0)

with last_words(Path(sys.argv[1])):
    print("ready", flush=True)
    globals()[sys.argv[2]]()
"""


@contextmanager
def running(folder: Path, place: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), place],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("place", ["in_python", "in_c_with_the_lock", "asleep"])
def test_stacks_come_wherever_the_main_thread_is(tmp_path: Path, place: str) -> None:
    with running(tmp_path, place) as process:
        for _ in range(100):  # it may not have got there yet
            stacks = asyncio.run(ask_for_stacks(tmp_path, process.pid))
            if f"in {place}" in stacks:
                break
        assert f"in {place}" in stacks and "most recent call first" in stacks
        assert process.poll() is None


def test_a_stopped_process_is_told_to_be_stopped(tmp_path: Path) -> None:
    with running(tmp_path, "asleep") as process:
        with stopped(process.pid):
            assert "stopped" in asyncio.run(ask_for_stacks(tmp_path, process.pid))


@pytest.mark.parametrize(
    ("place", "word"), [("fails", "ValueError: the reason"), ("crashes", "Segmentation")]
)
def test_an_end_leaves_its_reason(tmp_path: Path, place: str, word: str) -> None:
    with running(tmp_path, place) as process:
        process.wait(60)
    words = read_last_words(tmp_path)
    assert word in words and f"in {place}" in words


def test_where_nothing_is_nothing_is_read(tmp_path: Path) -> None:
    assert read_last_words(tmp_path) == ""
    assert "no stacks" in asyncio.run(ask_for_stacks(tmp_path, os.getpid()))


def test_ends_are_named() -> None:
    assert describe_exit(3) == "ended with exit code 3"
    assert describe_exit(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert "memory" in describe_exit(-signal.SIGKILL)
    assert describe_exit(-99) == "was killed by signal 99"
