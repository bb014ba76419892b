"""What the hosts of one tensor-parallel group tell each other: msgpack over TCP, and never a tensor."""

from __future__ import annotations

import msgspec

from qanat.config.graphs import GraphSettings
from qanat.config.resolved import SchedulerLimits
from qanat.core.memory_plan import MemoryPlan


class Challenge(msgspec.Struct, tag=True, frozen=True):
    """Node 0 to whoever connects.

    Attributes:
        nonce: to be mixed into the proof.
        has_key: whether a proof is asked for.
    """

    nonce: bytes
    has_key: bool


class Answer(msgspec.Struct, tag=True, frozen=True):
    """A node to node 0.

    Attributes:
        nonce: to be mixed into node 0's own proof.
        proof: that it knows the cluster's key; empty without one.
    """

    nonce: bytes
    proof: bytes


class Welcome(msgspec.Struct, tag=True, frozen=True):
    """Node 0 to a node: the proof that it knows the cluster's key too; empty without one."""

    proof: bytes


class NodeReport(msgspec.Struct, tag=True, frozen=True):
    """A node to node 0: who it is and what it would compute with.

    Attributes:
        node_rank, num_nodes: as it was told.
        pid, host, interface, address: of the process that speaks for the host.
        versions, traits: what must be equal everywhere, by name.
        available_bytes: memory that its ranks together could take.
    """

    node_rank: int
    num_nodes: int
    pid: int
    host: str
    interface: str
    address: str
    versions: dict[str, str]
    traits: dict[str, str]
    available_bytes: int


class NodeStart(msgspec.Struct, tag=True, frozen=True):
    """Node 0 to a node: start your ranks.

    Attributes:
        scheduler: limits, as they were fitted to the memory.
        graphs: as they follow from the limits; rows are padded alike on all hosts.
        num_valid_token_ids: see `ResolvedConfig`; the tokenizer says it, which only node 0 reads.
        memory_plan: what each rank allocates.
        seed: random; with the cluster's key it makes the secret of the group, see `qanat.executor.node_line`.
        join_timeout_s: all of them must have come within this.
        step_timeout_s: no exchange between the ranks may take longer.
    """

    scheduler: SchedulerLimits
    graphs: GraphSettings
    num_valid_token_ids: int
    memory_plan: MemoryPlan
    seed: bytes
    join_timeout_s: float
    step_timeout_s: float


class ForRank(msgspec.Struct, tag=True, frozen=True):
    """Node 0 to a node: pass this framed message on to the rank."""

    rank: int
    frame: bytes


class Batch(msgspec.Struct, tag=True, frozen=True):
    """Node 0 to a node: an encoded batch for all of its ranks."""

    payload: bytes


class OfRank(msgspec.Struct, tag=True, frozen=True):
    """A node to node 0: the rank says this, framed."""

    rank: int
    frame: bytes


class RankEnded(msgspec.Struct, tag=True, frozen=True):
    """A node to node 0: the rank's process has ended, and how."""

    rank: int
    words: str


class Beat(msgspec.Struct, tag=True, frozen=True):
    """Either to the other, while there is nothing else to say: I am here."""


class Farewell(msgspec.Struct, tag=True, frozen=True):
    """Either to the other: the group ends, and why; without words it ends as it should."""

    words: str


NodeMessage = (
    Challenge
    | Answer
    | Welcome
    | NodeReport
    | NodeStart
    | ForRank
    | Batch
    | OfRank
    | RankEnded
    | Beat
    | Farewell
)
