"""A rendered folder as `up` reads it: deployment.json, and the values that env.sh has on this host."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from qanat.core.errors import ConfigError
from qanat.deploy.render.addresses import LOCAL_IPV4
from qanat.deploy.render.deployment_file import DEPLOYMENT_FILE, FORMAT

READY_TIMEOUT = "READY_TIMEOUT_S"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
BASH_TIMEOUT_S = 20.0
_PRINT_VALUES = """\
set -eu
DEPLOYMENT_DIR=$1
source "$1/$2"
shift 2
for name; do printf '%s\\0' "${!name-}"; done
"""


class Scripts(msgspec.Struct, frozen=True):
    """Paths below the folder."""

    start: str
    stop: str


class Ready(msgspec.Struct, frozen=True):
    """What answers 200 once it is ready."""

    path: str


class DeployedNode(msgspec.Struct, frozen=True):
    """An engine of deployment.json; `ready` and `port` are None where it answers no requests itself."""

    name: str
    role: str
    instance: int
    rank: int
    address_variable: str
    port: int | None
    ready: Ready | None
    container: str | None
    log: str
    scripts: Scripts


class DeployedProxy(msgspec.Struct, frozen=True):
    """The proxy of deployment.json."""

    node: str
    address_variable: str
    port: int
    ready: Ready
    container: str | None
    log: str
    scripts: Scripts


class Service(msgspec.Struct, frozen=True):
    """Where clients send requests."""

    node: str


class Deployment(msgspec.Struct, frozen=True):
    """deployment.json, as far as it is needed here."""

    format: int
    name: str
    environment: str
    logs_variable: str
    service: Service
    nodes: tuple[DeployedNode, ...]
    proxy: DeployedProxy | None


@dataclass(frozen=True)
class Folder:
    """A rendered folder on this host.

    Attributes:
        path: of the folder, absolute.
        deployment: what is in it.
        addresses: of the nodes, by name; empty where env.sh has none.
        logs: folder for logs.
        ready_timeout_s: how long scripts would wait for an engine.
    """

    path: Path
    deployment: Deployment
    addresses: Mapping[str, str]
    logs: Path
    ready_timeout_s: float

    def url(self, node_name: str, port: int, path: str) -> str:
        """Where a node answers; on the loopback interface if it has no address."""
        address = self.addresses.get(node_name) or LOCAL_IPV4
        return f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"

    def nodes_here(self, names: Sequence[str], own_addresses: Collection[str]) -> tuple[DeployedNode, ...]:
        """The nodes that this host is.

        Args:
            names: as a person gave them; else the only node, or those that have an address of this host.
            own_addresses: of this host.

        Raises:
            ConfigError: there is no such node, or none can be chosen.
        """
        nodes = self.deployment.nodes
        listed = ", ".join(node.name for node in nodes)
        for name in names:
            if all(node.name != name for node in nodes):
                raise ConfigError(f"--node: there is no node {name}; there are: {listed}.", param="--node")
        if names:
            return tuple(node for node in nodes if node.name in names)
        if len(nodes) == 1:
            return nodes
        own = {*own_addresses, *LOOPBACK}
        here = tuple(node for node in nodes if self.addresses.get(node.name) in own)
        if not here:
            raise ConfigError(
                f"no node has an address of this host in {self.deployment.environment}; correct it, or say with "
                f"--node which one this host is: {listed}.",
                param="--node",
            )
        return here


def read_folder(word: str) -> Folder:
    """A folder that `qanat deploy render` wrote.

    Raises:
        ConfigError: it is none, of another version, or its env.sh cannot be read by bash.
    """
    path = Path(word).absolute()
    file = path / DEPLOYMENT_FILE
    try:
        deployment = msgspec.json.decode(file.read_bytes(), type=Deployment)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror or error}; name a folder that qanat deploy render wrote."
        ) from None
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{file} is not what qanat deploy render writes: {error}; render it again."
        ) from None
    if deployment.format != FORMAT:
        raise ConfigError(
            f"{file} has the format {deployment.format}, this Qanat knows {FORMAT}; render the folder again."
        )
    _check(file, path, deployment)
    variables = [
        deployment.logs_variable,
        READY_TIMEOUT,
        *(node.address_variable for node in deployment.nodes),
    ]
    logs, timeout_s, *addresses = _values(path, deployment.environment, variables)
    if not logs or not Path(logs).is_absolute():
        raise ConfigError(f"{deployment.environment}: {deployment.logs_variable} must be an absolute path.")
    if not timeout_s.isascii() or not timeout_s.isdigit() or int(timeout_s) == 0:
        raise ConfigError(
            f"{deployment.environment}: {READY_TIMEOUT} must be a whole number of seconds, at least 1."
        )
    names = [node.name for node in deployment.nodes]
    return Folder(path, deployment, dict(zip(names, addresses, strict=True)), Path(logs), float(timeout_s))


def _check(file: Path, folder: Path, deployment: Deployment) -> None:
    """Refuses what render never writes: nothing to run, an engine that nobody could ask, files outside of the folder.

    Raises:
        ConfigError: naming it.
    """
    broken = f"{file} is not what qanat deploy render writes"
    if not deployment.nodes:
        raise ConfigError(f"{broken}: it has no nodes; render it again.")
    for node in deployment.nodes:
        group = [one for one in deployment.nodes if (one.role, one.instance) == (node.role, node.instance)]
        if all(one.ready is None or one.port is None for one in group):
            raise ConfigError(
                f"{broken}: no node of {node.role} {node.instance} says when it is ready; render it again."
            )
    scripts = [one.scripts for one in (*deployment.nodes, deployment.proxy) if one is not None]
    inside = [deployment.environment, *(name for one in scripts for name in (one.start, one.stop))]
    for name in inside:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{broken}: {name} lies outside of the folder; render it again.")


def _values(folder: Path, environment: str, names: Sequence[str]) -> list[str]:
    """What bash makes of env.sh: its values may contain other variables, and scripts read it just so."""
    command = ["bash", "-c", _PRINT_VALUES, "bash", str(folder), environment, *names]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=BASH_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"bash did not finish {folder / environment} in {BASH_TIMEOUT_S:.0f} s; it may only set variables."
        ) from None
    except OSError as error:
        raise ConfigError(f"bash cannot read {folder / environment}: {error.strerror or error}") from None
    values = done.stdout.decode(errors="replace").split("\0")[:-1]
    if done.returncode != 0 or len(values) != len(names):
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise ConfigError(f"bash cannot read {folder / environment}: {said}")
    return values
