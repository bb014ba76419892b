"""What the planner returns: roles, nodes, settings, memory, and a reason for every choice.

All of it is data: it is written as YAML and read back (`encode_plan`, `decode_plan` in `plan/files.py`), so a plan
can be kept, compared and rendered later.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from qanat.deploy.knowledge.entry import Confidence
from qanat.deploy.plan.wish import Topology, Wish
from qanat.deploy.sizing.memory import Memory, MemoryItem

__all__ = ["Choice", "Memory", "MemoryItem", "Node", "Plan", "Proxy", "Role", "RoleName"]

RoleName = Literal["server", "prefill", "decode"]


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One decision of the planner.

    Attributes:
        what: flag, variable or property it decides ("--tensor-parallel-size", "HCCL_BUFFSIZE", "image", "topology").
        value: as text, the way a user would write it.
        reason: one sentence.
        source: where the fact behind it is known from.
        confidence: how that was learnt.
        changes_if: what would lead to another value; empty if nothing would.
        role: the role it is for; None for all.
    """

    what: str
    value: str
    reason: str
    source: str
    confidence: Confidence
    changes_if: str = ""
    role: RoleName | None = None


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all engines of one kind share.

    Attributes:
        name: server where prefill and decode are together.
        tensor_parallel_size: NPUs of one data parallel rank.
        data_parallel_size: ranks over all nodes of one instance.
        num_instances: engines of this kind, each with an address of its own.
        nodes_per_instance: nodes that one instance spans.
        flags: of `vllm serve`, without dashes, in the order to write them; True is a switch, False its --no- form,
            a dict a JSON argument. What depends on the node (addresses, ranks, --headless) is in `Node.flags`.
        env: variables of the engine's process that are the same on every node.
        capture_sizes: what is captured, empty without graphs.
        memory: of one NPU.
    """

    name: RoleName
    tensor_parallel_size: int
    data_parallel_size: int
    num_instances: int
    nodes_per_instance: int
    flags: dict[str, Any]
    env: dict[str, str]
    capture_sizes: tuple[int, ...]
    memory: Memory


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine of the deployment.

    Attributes:
        name: "server-0", "prefill-0", "decode-1", ...: unique, fit for a file name.
        role: the role whose engine it runs.
        instance: which instance of the role, from 0.
        rank: its place inside the instance, from 0; 0 answers requests.
        address: IP address; empty if the user has not said.
        interface: network interface; empty if the user has not said.
        npus: numbers of the devices it uses.
        flags: flags of this node, over those of the role.
        env: variables of this node, over those of the role; values may be empty where address or interface are.
    """

    name: str
    role: RoleName
    instance: int
    rank: int
    address: str
    interface: str
    npus: tuple[int, ...]
    flags: dict[str, Any]
    env: dict[str, str]


class Proxy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What stands in front of the engines of a disaggregated deployment.

    Attributes:
        program: `qanat router`, or the name of vllm-ascend's example proxy for the connector.
        connector: the KV connector whose protocol it speaks.
        node: name of the node that it runs on.
        port: it listens on.
    """

    program: str
    connector: str
    node: str
    port: int


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A deployment.

    Attributes:
        wish: what was asked.
        model: the name in the knowledge base.
        weights: the variant.
        repository: of the weights.
        model_source: what `vllm serve` is given: a path or the repository.
        served_model_name: the name in requests.
        chip: the name in the knowledge base.
        release: of vllm-ascend.
        image: with its tag.
        driver: lowest driver (HDK) known to work, empty if unknown.
        cann: what the image ships, empty if unknown.
        topology: how engines lie over nodes.
        roles: one, or prefill and decode.
        nodes: all machines.
        proxy: in front of prefill and decode; None elsewhere.
        port: clients talk to it on the first node, or on the proxy's.
        choices: every decision, most important first.
        warnings: what the user should know before he starts it.
    """

    wish: Wish
    model: str
    weights: str
    repository: str
    model_source: str
    served_model_name: str
    chip: str
    release: str
    image: str
    driver: str
    cann: str
    topology: Topology
    roles: tuple[Role, ...]
    nodes: tuple[Node, ...]
    proxy: Proxy | None
    port: int
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...] = ()

    def role(self, name: str) -> Role:
        """The role with this name.

        Raises:
            KeyError: there is none.
        """
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)
