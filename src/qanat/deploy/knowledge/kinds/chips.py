"""Chips, their names in npu-smi, and drivers."""

from __future__ import annotations

from qanat.deploy.knowledge.entry import Entry


class Chip(Entry, frozen=True, kw_only=True):
    """An accelerator generation: NPUs of one node, memory of one NPU in GiB, and the suffix of its image tags.

    `first_release` is the first of vllm-ascend that has images for it, where that is later than the first known.
    `needs_host_pids` says that CPU binding in a container works with the host's process ids only;
    `kubernetes_resource` is what the device plugin of Kubernetes calls an NPU.
    `kubernetes_node_types` are values of the label accelerator-type that nodes with it have, where another chip has
    the same resource.
    Experts exchange tokens by dispatch and combine (MC2) from `mc2_least_npus` on, None for never, with at most
    `mc2_most_experts` on each, None for any number. `has_full_mask`: attention reads a mask of the longest context
    squared.
    """

    family: str
    image_suffix: str
    num_npus_per_node: int
    memory_gib: float
    visible_bytes: dict[int, int]
    spellings: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    needs_host_pids: bool = False
    kubernetes_resource: str = "huawei.com/Ascend910"
    kubernetes_node_types: tuple[str, ...] = ()
    first_release: str | None = None
    mc2_least_npus: int | None = None
    mc2_most_experts: int | None = None
    has_full_mask: bool = False


class DeviceName(Entry, frozen=True, kw_only=True):
    """How npu-smi names a chip: `name` is a regular expression for the whole name, `chip` an entry of the chips."""

    chip: str


class DriverSupport(Entry, frozen=True, kw_only=True):
    """Drivers (HDK) that a series of CANN works with; `name` is the series ("8.5").

    `oldest` is the oldest that is listed for it, `recommended` the oldest that is known to serve graphs well; both
    count for `chips` only, because other chips number their drivers otherwise.
    """

    oldest: str
    recommended: str
    chips: tuple[str, ...]
