"""Machines: names, NPUs, addresses, ports, and what their engines are told besides the settings of the role."""

from __future__ import annotations

from typing import Any

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.node_settings import INTERFACE_VARIABLES
from qanat.deploy.plan.arrangement import Arrangement
from qanat.deploy.plan.engines import Engine
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.model import Node, RoleName
from qanat.deploy.plan.wish import Topology, Wish

LAST_PORT = 65535


def make_nodes(wish: Wish, arrangement: Arrangement, engines: tuple[Engine, ...]) -> tuple[Node, ...]:
    """All machines, prefill before decode, the nodes of an instance together.

    Raises:
        ImpossibleWish: the addresses are not one for each node.
    """
    num_nodes = arrangement.num_nodes
    if wish.addresses and len(wish.addresses) != num_nodes:
        why = f"--addresses names {len(wish.addresses)} nodes, and the deployment has {num_nodes}."
        candidates = [msgspec.structs.replace(wish, addresses=())]
        raise ImpossibleWish(why, param="--addresses", candidates=candidates)
    addresses = iter(wish.addresses or ("",) * num_nodes)
    nodes: list[Node] = []
    for group, engine in zip(arrangement.groups, engines, strict=True):
        number = 0
        for instance in range(group.num_instances):
            own = [next(addresses) for _ in range(group.num_nodes)]
            for rank, address in enumerate(own):
                name = f"{group.role}-{number}"
                nodes.append(_node(wish, arrangement, engine, name, (instance, rank), address, own[0]))
                number += 1
    return tuple(nodes)


def _node(
    wish: Wish,
    arrangement: Arrangement,
    engine: Engine,
    name: str,
    place: tuple[int, int],
    address: str,
    first_address: str,
) -> Node:
    shape, (instance, rank) = engine.shape, place
    npus = tuple(range(shape.npus_per_node))
    flags: dict[str, Any] = {}
    env = {"ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, npus))}
    if rank == 0:
        flags |= {"host": "0.0.0.0", "port": engine_port(wish, engine)}
    is_group = shape.num_nodes > 1 and arrangement.topology is not Topology.RAY
    if is_group:
        flags |= {
            "data-parallel-address": first_address,
            "data-parallel-rpc-port": engine.advice.take("--data-parallel-rpc-port"),
        }
        if rank == 0:
            flags["api-server-count"] = shape.num_nodes
            engine.advice.compute("--api-server-count", shape.num_nodes)
        else:
            flags |= {"headless": True, "data-parallel-start-rank": rank * shape.dp_local}
    if arrangement.num_nodes > 1:
        env |= {"HCCL_IF_IP": address, **dict.fromkeys(INTERFACE_VARIABLES, wish.interface or "")}
    return Node(
        name=name,
        role=engine.role,
        instance=instance,
        rank=rank,
        address=address,
        interface=wish.interface or "",
        npus=npus,
        flags=flags,
        env=env,
    )


def engine_port(wish: Wish, engine: Engine) -> int:
    """The port on which an engine answers."""
    return int(engine.advice.take("--port", wish.port))


def ports_of(engine: Engine, flags: dict[str, Any], nodes: tuple[Node, ...]) -> list[tuple[str, range]]:
    """The ports that are taken on the node of rank 0 of an engine, with what they are for."""
    first = next(node for node in nodes if node.role == engine.role and node.rank == 0)
    found = []
    for name in ("port", "data-parallel-rpc-port"):
        port = first.flags.get(name)
        if port is not None:
            found.append((f"--{name}", range(int(port), int(port) + 1)))
    transfer = flags.get("kv-transfer-config")
    if transfer is not None:
        base = int(transfer["kv_port"])
        found.append(("kv_port", range(base, base + engine.shape.ranks)))
    return found


def foreign_ports(num_npus: int, has_transfer: bool, knowledge: Knowledge) -> list[tuple[str, range]]:
    """Ports that libraries take by themselves on every node, with who takes them.

    Args:
        num_npus: that the chip has on a node.
        has_transfer: caches are carried between engines.
        knowledge: facts.
    """

    def number(name: str) -> int:
        return int(knowledge.tables["host_thresholds"].entries[name].value)

    first = number("hccl-first-port")
    found = [("HCCL", range(first, first + number("hccl-num-ports")))]
    if has_transfer:
        first = number("transfer-first-port")
        size = number("transfer-ports-per-npu") * num_npus
        found.append(("the transfer engine", range(first, first + size)))
    return found


def check_ports(
    wish: Wish,
    taken: dict[RoleName, list[tuple[str, range]]],
    proxy_port: int | None,
    foreign: list[tuple[str, range]],
) -> None:
    """Every port against every other on the same machine; the proxy stands beside the first prefill engine.

    Raises:
        ImpossibleWish: two uses overlap, one is no port, or libraries take it by themselves.
    """
    free = msgspec.structs.replace(wish, port=None, proxy_port=None)
    for role, ports in taken.items():
        if proxy_port is not None and role == "prefill":
            ports = [*ports, ("--proxy-port", range(proxy_port, proxy_port + 1))]
        for index, (name, used) in enumerate(ports):
            if used.start < 1 or used.stop - 1 > LAST_PORT:
                why = f"{name} {used.start} is no port; 1 to {LAST_PORT} are."
                raise ImpossibleWish(why, param=name, candidates=[free])
            for owner, there in foreign:
                if max(used.start, there.start) < min(used.stop, there.stop):
                    why = f"{name} {_text(used)} lies among the ports {_text(there)} that {owner} takes."
                    raise ImpossibleWish(why, param=name, candidates=[free])
            for other, there in ports[:index]:
                if max(used.start, there.start) < min(used.stop, there.stop):
                    why = f"{name} {_text(used)} and {other} {_text(there)} overlap on the same node."
                    raise ImpossibleWish(why, param=name, candidates=[free])


def _text(ports: range) -> str:
    return str(ports.start) if len(ports) == 1 else f"{ports.start} to {ports.stop - 1}"
