"""The hosts that tests play with: they reach each other, can be cut off without a word, and leave nothing behind."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
from collections.abc import Iterator

from tests.netns import Host, namespaces


def test_hosts_reach_each_other_unless_one_is_cut_off() -> None:
    with namespaces(2) as (left, right), _listening(left) as listener:
        assert _reaches(right, listener)
        right.cut()
        assert not _reaches(right, listener, limit_s=2.0)
        right.join()
        assert _reaches(right, listener)


def test_processes_and_namespaces_are_gone_afterwards() -> None:
    with namespaces(1) as (host,):
        sleeper = host.start(["sleep", "600"])
        assert host.run(["true"]).returncode == 0
    assert sleeper.wait(timeout=30) != 0
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert host.name not in listed


def test_a_host_can_be_slow() -> None:
    with namespaces(2) as (left, right), _listening(left) as listener:
        right.slow_down(delay_ms=20)
        assert _reaches(right, listener)


@contextlib.contextmanager
def _listening(host: Host) -> Iterator[socket.socket]:
    with host.inside():
        listener = socket.create_server((host.address, 0))
    with listener:
        yield listener


def _reaches(host: Host, listener: socket.socket, limit_s: float = 60.0) -> bool:
    with host.inside():
        try:
            socket.create_connection(listener.getsockname(), timeout=limit_s).close()
        except TimeoutError:
            return False
        except OSError as error:
            assert error.errno == errno.EHOSTUNREACH, "refused, which takes an answer"
            return False
    return True
