"""How engines lie over nodes: one node, several, or prefill and decode apart; candidates in order of preference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import msgspec

from qanat.config.flag_names import flag_of
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.model import RoleName
from qanat.deploy.plan.wish import Topology, Wish

MAX_NODES = 8
"""Nodes of one instance that are tried where the wish does not say."""
MAX_INSTANCES = 4
"""Instances of a role that are tried where the wish does not say."""
PAIR_FIELDS = (
    "prefill_nodes",
    "decode_nodes",
    "num_prefill",
    "num_decode",
    "decode_tensor_parallel_size",
    "decode_data_parallel_size",
    "connector",
    "proxy_port",
)
"""Fields that only mean something with prefill and decode apart."""


@dataclass(frozen=True)
class Group:
    """Engines of one role.

    Attributes:
        role: what they do.
        num_nodes: nodes of one instance.
        num_instances: how many there are.
    """

    role: RoleName
    num_nodes: int
    num_instances: int = 1


@dataclass(frozen=True)
class Arrangement:
    """Engines over nodes."""

    topology: Topology
    groups: tuple[Group, ...]

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole deployment."""
        return sum(group.num_nodes * group.num_instances for group in self.groups)

    @property
    def title(self) -> str:
        """In words, such as "pd 1P1D" or "multi-node on 2 nodes"."""
        if self.topology is Topology.DISAGGREGATED:
            prefill, decode = self.groups
            return f"{self.topology.value} {prefill.num_instances}P{decode.num_instances}D"
        return str(self.topology.value)


def wants_pair(wish: Wish) -> bool:
    """Whether prefill and decode are to be apart."""
    if wish.topology is not None:
        return wish.topology is Topology.DISAGGREGATED
    return any(getattr(wish, name) is not None for name in PAIR_FIELDS)


def arrangements(wish: Wish) -> Iterator[Arrangement]:
    """What the wish allows, best first; where it leaves the nodes open, fewest nodes first.

    Raises:
        ImpossibleWish: its fields contradict each other.
    """
    if wants_pair(wish):
        yield from _pairs(wish)
        return
    for name in PAIR_FIELDS:
        if getattr(wish, name) is not None:
            flag = flag_of(name)
            stated = wish.topology.value if wish.topology else ""
            candidates = [
                msgspec.structs.replace(wish, **{name: None}),
                msgspec.structs.replace(wish, topology=None),
            ]
            why = f"{flag} is for --topology pd, and --topology {stated} is asked for."
            raise ImpossibleWish(why, param=flag, candidates=candidates)
    topology = wish.topology
    if topology is Topology.SINGLE_NODE and (wish.nodes or 1) > 1:
        why = f"--topology single-node uses one node, and --nodes {wish.nodes} is asked for."
        candidates = [
            msgspec.structs.replace(wish, topology=None),
            msgspec.structs.replace(wish, nodes=1),
        ]
        raise ImpossibleWish(why, param="--topology", candidates=candidates)
    if topology in (Topology.MULTI_NODE, Topology.RAY) and wish.nodes == 1:
        why = f"--topology {topology.value} needs two nodes or more, and --nodes 1 is asked for."
        candidates = [
            msgspec.structs.replace(wish, topology=None),
            msgspec.structs.replace(wish, nodes=2),
        ]
        raise ImpossibleWish(why, param="--topology", candidates=candidates)
    first = 2 if topology in (Topology.MULTI_NODE, Topology.RAY) else 1
    last = 1 if topology is Topology.SINGLE_NODE else MAX_NODES
    for num_nodes in [wish.nodes] if wish.nodes else range(first, last + 1):
        kind = topology or (Topology.SINGLE_NODE if num_nodes == 1 else Topology.MULTI_NODE)
        yield Arrangement(kind, (Group("server", num_nodes),))


def _pairs(wish: Wish) -> Iterator[Arrangement]:
    found = list(_fitting_pairs(wish))
    if not found:
        stated = [
            f"{flag_of(name)} {getattr(wish, name)}"
            for name in ("nodes", "prefill_nodes", "num_prefill", "decode_nodes", "num_decode")
            if getattr(wish, name) is not None
        ]
        least = (wish.num_prefill or 1) * (wish.prefill_nodes or 1)
        least += (wish.num_decode or 1) * (wish.decode_nodes or 1)
        why = f"{', '.join(stated)} do not go together: prefill and decode take {least} nodes"
        why += " exactly." if None not in (wish.num_prefill, wish.num_decode) else " or more."
        candidates = [
            msgspec.structs.replace(wish, nodes=least),
            msgspec.structs.replace(wish, nodes=None),
        ]
        if (wish.nodes or 2) == 1:
            candidates.append(_together(wish))
        raise ImpossibleWish(why, param="--nodes", candidates=candidates)
    yield from found


def _together(wish: Wish) -> Wish:
    """The same without prefill and decode apart."""
    return msgspec.structs.replace(wish, topology=None, **dict.fromkeys(PAIR_FIELDS))


def _fitting_pairs(wish: Wish) -> Iterator[Arrangement]:
    """Pairs within the stated numbers: balanced ones first, decode the larger side, few nodes an instance."""
    sizes = product(
        [wish.num_prefill] if wish.num_prefill else range(1, MAX_INSTANCES + 1),
        [wish.prefill_nodes] if wish.prefill_nodes else range(1, MAX_NODES + 1),
        [wish.num_decode] if wish.num_decode else range(1, MAX_INSTANCES + 1),
        [wish.decode_nodes] if wish.decode_nodes else range(1, MAX_NODES + 1),
    )
    is_free = wish.nodes is None
    found = []
    for num_prefill, prefill_nodes, num_decode, decode_nodes in sizes:
        prefill, decode = num_prefill * prefill_nodes, num_decode * decode_nodes
        if not is_free and prefill + decode != wish.nodes:
            continue
        if is_free and (num_prefill > (wish.num_prefill or 1) or num_decode > (wish.num_decode or 1)):
            continue
        order = (
            prefill + decode,
            prefill > decode,
            abs(prefill - decode),
            prefill_nodes,
            num_decode,
            decode_nodes,
        )
        groups = (Group("prefill", prefill_nodes, num_prefill), Group("decode", decode_nodes, num_decode))
        found.append((order, Arrangement(Topology.DISAGGREGATED, groups)))
    yield from (arrangement for _, arrangement in sorted(found, key=lambda pair: pair[0]))
