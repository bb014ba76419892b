"""What one node tells another about itself."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from qanat import __version__
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.preflight.cards import npu_table, used_chips
from qanat.deploy.preflight.container import package_versions
from qanat.deploy.preflight.driver import driver_version
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.model_folder import fingerprint
from qanat.deploy.preflight.npu_smi import read_tls
from qanat.deploy.preflight.ports import LAST_PORT, port_uses
from qanat.deploy.preflight.target import Target
from qanat.deploy.preflight.wire import PeerError

MAX_PORTS = 32


class PeerFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node as it describes itself.

    Attributes:
        node: its name in the plan.
        host: its host name.
        qanat: version of this program.
        plan: hash of the plan.
        image: with its tag.
        driver: empty if unknown.
        chips: names of its NPUs, one each.
        num_planned: NPUs that the plan gives it.
        tls: switches of its NPUs' ports, without doubles: "0", "1", or both.
        packages: versions inside the image; empty outside.
        model: fingerprint of the model folder by part; empty without one.
        ports: that it listens on, some of each range.
    """

    node: str
    host: str
    qanat: str
    plan: str
    image: str
    driver: str
    chips: tuple[str, ...]
    num_planned: int
    tls: tuple[str, ...]
    packages: dict[str, str]
    model: dict[str, str]
    ports: tuple[int, ...]


def plan_hash(plan: Plan) -> str:
    """What tells two plans apart."""
    return hashlib.sha256(encode_plan(plan).encode()).hexdigest()[:16]


def own_facts(host: Host, target: Target) -> PeerFacts:
    """What this node tells; the target is that of a plan."""
    chips = used_chips(npu_table(host), target)
    tls = {read_tls(host.run("hccn_tool", "-i", str(chip.physical), "-tls", "-g").text) for chip in chips}
    return PeerFacts(
        node=target.node.name if target.node else "",
        host=host.host_name(),
        qanat=__version__,
        plan=plan_hash(target.plan) if target.plan else "",
        image=target.image,
        driver=driver_version(host),
        chips=tuple(chip.name for chip in chips),
        num_planned=len(target.npus),
        tls=tuple(sorted(tls - {""})),
        packages=package_versions(host) if target.is_in_container else {},
        model=fingerprint(target.model_path) if target.model_path else {},
        ports=sample_ports(target),
    )


def sample_ports(target: Target) -> tuple[int, ...]:
    """The first and the last port of everything that a node listens on: a firewall opens ranges, not single ports."""
    found = [port for use in port_uses(target) for port in (use.ports.start, use.ports.stop - 1)]
    return tuple(sorted({port for port in found if 0 < port <= LAST_PORT}))[:MAX_PORTS]


def decode_facts(raw: Any) -> PeerFacts:
    """Facts of a message.

    Raises:
        PeerError: they are not as this version writes them.
    """
    try:
        facts = msgspec.convert(raw, PeerFacts)
    except msgspec.ValidationError as error:
        raise PeerError(f"the other end describes itself otherwise than this version does: {error}") from None
    if len(facts.ports) > MAX_PORTS or any(not 0 < port <= LAST_PORT for port in facts.ports):
        raise PeerError("the other end names too many ports")
    return facts
