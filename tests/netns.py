"""Hosts that are network namespaces on one switch: each with an address and a loopback interface of its own.

    with namespaces(2) as (left, right):
        server = left.start([sys.executable, "-m", "http.server", "--bind", left.address])
        with right.inside():  # sockets that are made here belong to that host for ever
            httpx.get(f"http://{left.address}:8000")
        right.cut()  # frames vanish without a word, as when a cable is pulled in the next room
        right.join()

It takes root and `ip`; delay and loss take the kernel's netem besides. A test that asks for what this machine does not
have is skipped with the reason. Nothing outside the namespaces is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

INTERFACE = "eth0"
"""Name of the interface to the switch, on every host."""
_BRIDGE = "switch"
_NETWORK = 0x40000000
"""CLONE_NEWNET of the kernel."""
_numbers = itertools.count()


@dataclass(frozen=True)
class Host:
    """One namespace.

    Attributes:
        name: of the namespace.
        address: on `INTERFACE`, within one network of all hosts.
        port: name of the switch's end of the cable.
        switch: name of the namespace where the switch is.
    """

    name: str
    address: str
    port: str
    switch: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs this one on the host; the process is the command itself."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def run(self, arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, for at most 60 s unless told otherwise; its output is text."""
        options = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
        return subprocess.run(self.command(arguments), **options)

    def start(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a command; what still runs when the namespaces go is killed."""
        return subprocess.Popen(self.command(arguments), **options)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is on the host: sockets made now belong to it, also when they are used later."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.name}") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def cut(self) -> None:
        """From now on frames from and to this host vanish; nobody is told, and both ends keep their link."""
        self._set_port("nomaster")

    def join(self) -> None:
        """Ends a `cut`."""
        self._set_port("master", _BRIDGE)

    def slow_down(self, delay_ms: float = 0.0, loss_percent: float = 0.0) -> None:
        """Every frame that the host sends comes so much later, and so many do not come."""
        if missing := _missing_for_delay():
            pytest.skip(missing)
        wish = ["delay", f"{delay_ms}ms", "loss", f"{loss_percent}%"]
        _ip_netns(self.name, "tc", "qdisc", "replace", "dev", INTERFACE, "root", "netem", *wish)

    def _set_port(self, *words: str) -> None:
        _ip_netns(self.switch, "ip", "link", "set", self.port, *words)


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[Host]]:
    """So many hosts, each reaching each; they and their processes are gone afterwards."""
    if missing := _missing_for_namespaces():
        pytest.skip(missing)
    with _made(count) as hosts:
        yield hosts


@contextlib.contextmanager
def _made(count: int) -> Iterator[list[Host]]:
    stem = f"qanat-{os.getpid()}-{next(_numbers)}"
    switch = f"{stem}-switch"
    hosts = [Host(f"{stem}-{i}", f"10.77.0.{i + 1}", f"port{i}", switch) for i in range(count)]
    try:
        _run("ip", "netns", "add", switch)
        _ip_netns(switch, "ip", "link", "add", _BRIDGE, "type", "bridge")
        _ip_netns(switch, "ip", "link", "set", _BRIDGE, "up")
        for host in hosts:
            _plug_in(host)
        yield hosts
    finally:
        for name in (*(host.name for host in hosts), switch):
            _remove(name)


def _plug_in(host: Host) -> None:
    _run("ip", "netns", "add", host.name)
    ends = ["name", host.port, "type", "veth", "peer", "name", INTERFACE, "netns", host.name]
    _ip_netns(host.switch, "ip", "link", "add", *ends)
    _ip_netns(host.switch, "ip", "link", "set", host.port, "master", _BRIDGE, "up")
    _ip_netns(host.name, "ip", "address", "add", f"{host.address}/24", "dev", INTERFACE)
    for interface in ("lo", INTERFACE):
        _ip_netns(host.name, "ip", "link", "set", interface, "up")


def _remove(name: str) -> None:
    """Ends the namespace and every process in it; harmless if it was never there."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
    for pid in pids.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip_netns(name: str, *command: str) -> None:
    _run("ip", "netns", "exec", name, *command)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


def _enter(descriptor: int) -> None:
    """Moves the calling thread, and only it, into a network namespace."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns failed")


@functools.cache
def _missing_for_namespaces() -> str:
    """Why there can be no namespaces here; "" if there can."""
    if shutil.which("ip") is None:
        return "no network namespaces: there is no `ip` program"
    try:
        with _made(2):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: `{' '.join(error.cmd)}` says {error.stderr.strip()}"


@functools.cache
def _missing_for_delay() -> str:
    """Why the network between namespaces cannot be slowed down here; "" if it can."""
    try:
        with _made(1) as (host,):
            _ip_netns(host.name, "tc", "qdisc", "add", "dev", INTERFACE, "root", "netem", "delay", "1ms")
            return ""
    except subprocess.CalledProcessError as error:
        return f"no delay between namespaces: `{' '.join(error.cmd)}` says {error.stderr.strip()}"
